"""One environment. This module runs in child processes, so it imports no torch."""

import numpy as np

from rlinf_core.api import state_seed


class SketchEnvironment:
    """One cart. NumPy in, NumPy out; it never resets itself."""

    def __init__(self, max_episode_steps, push):
        self._limit, self._push = max_episode_steps, push

    def reset(self, state):
        """Start an episode that depends on ``state`` alone."""
        random = np.random.default_rng(state_seed(state))
        self._position, self._mark = random.uniform(-1, 1, 2)
        self._velocity, self._steps = 0.0, 0
        return self._see()

    def step(self, action):
        """Return observation, reward, terminated, truncated and success."""
        self._velocity += self._push * float(action[0])
        self._position += self._velocity
        self._steps += 1
        distance = abs(self._position - self._mark)
        solved = distance < 0.05 and abs(self._velocity) < 0.05
        return self._see(), -distance, False, self._steps >= self._limit, solved

    def render(self):
        """Return uint8 [H, W, 3], or None where nothing is drawn."""
        return None

    def close(self):
        """Free nothing."""

    def _see(self):
        return {"state": np.array([self._position, self._velocity, self._mark])}
