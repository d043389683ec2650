"""Environments small enough to work out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Walk(gymnasium.Env):
    """A walk over 0 to 9 by -1, 0 or 1 (actions 5, 6, 7) from a place that the seed decides.

    It ends at 9. ``info`` tells success at 8 and 9, and the reward is the place.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, render_mode: str | None = None, broken: bool = False, show: str = "box"):
        self.render_mode, self._broken, self._show = render_mode, broken, show
        self.observation_space = {
            "box": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "discrete": spaces.Discrete(10),
            "image": spaces.Dict(
                {
                    "front": spaces.Box(0, 255, (4, 6, 3), np.uint8),
                    "place": spaces.Box(0, 9, (1,), np.float64),
                }
            ),
        }[show]

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self._at = int(self.np_random.integers(5))
        self._noise = float(self.np_random.random())
        return self._look(), {}

    def step(self, action: int):
        assert self.action_space.contains(action), action
        self._at = int(np.clip(self._at + action - 6, 0, 9))
        info = {"is_success": self._at >= 8}
        return self._look(), float(self._at), self._at == 9, False, info

    def render(self):
        if self._broken:
            raise RuntimeError("no screen here")
        return np.full((4, 6, 3), self._at, np.uint8)

    def _look(self):
        if self._show == "discrete":
            return self._at
        if self._show == "image":
            return {"front": self.render(), "place": np.array([self._at], np.float64)}
        return np.array([self._at, self._noise], np.float32)


class Odd(Walk):
    """A walk whose actions no policy can give."""

    action_space = spaces.MultiBinary(3)
    closed = 0

    def close(self):
        Odd.closed += 1


def make_world(num_envs: int, mode: str = "SAME_STEP", **kwargs: Any) -> SyncVectorEnv:
    """Return a vector environment in any of Gymnasium's modes."""
    return SyncVectorEnv([lambda: Walk(**kwargs)] * num_envs, autoreset_mode=AutoresetMode[mode])


def make_nothing(num_envs: int) -> str:
    return "nothing"


gymnasium.register("ToyWalk-v0", entry_point=Walk, max_episode_steps=30)
gymnasium.register("ToyOdd-v0", entry_point="gymnasium_toys:Odd")
