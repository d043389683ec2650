"""The component's target: peers' environments over a few processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.tasks import TASKS
from rlinf_core.api import EnvSlots, ProcessSimulator, StateId, state_seed
from rlinf_plugin_bench.config import PeersConfig, make_spaces


class PeersEnvironment:
    """One environment as a peer sees it. Its episodes start where it likes, seeded once."""

    def __init__(self, task: str) -> None:
        self._env, self._seeded = TASKS[task](), False

    def reset(self, state: StateId) -> dict[str, Any]:
        """Start an episode as peers do: with a seed the first time, without one afterwards."""
        seed = None if self._seeded else state_seed(state) % 2**31
        self._seeded = True
        observation, _ = self._env.reset(seed=seed)
        return {"state": np.asarray(observation)}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, bool]:
        """Do one step."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return (
            {"state": np.asarray(observation)},
            float(reward),
            bool(terminated),
            bool(truncated),
            bool(info["success"]),
        )

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Free the environment."""
        self._env.close()


def make_simulator(config: PeersConfig, slots: EnvSlots) -> ProcessSimulator:
    """Return a simulator of ``config.task``."""
    return ProcessSimulator(
        slots,
        make_spaces(config.task),
        "rlinf_plugin_bench.environment:PeersEnvironment",
        {"task": config.task},
        states={"train": 1_000_000, "test": 100},
        processes=config.processes,
        imports=["rlinf_plugin_bench.environment"],
        variables={"MUJOCO_GL": "disable"},
    )
