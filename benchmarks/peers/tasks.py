"""The tasks as peers see them: a Gymnasium environment each, as its library makes it.

A new task is a function in :data:`TASKS`; how we run it is a run file in ``benchmarks/configs``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

EPISODE = 100
"""Steps after which an episode is truncated."""


def reach() -> Any:
    """Meta-World's reach-v3 with its goal in the observation, float64 [39], actions [4]."""
    os.environ.setdefault("MUJOCO_GL", "disable")
    warnings.filterwarnings("ignore")
    import gymnasium
    import metaworld  # noqa: F401 (registers its environments)

    return gymnasium.make("Meta-World/MT1", env_name="reach-v3", max_episode_steps=EPISODE)


def pushcube() -> Any:
    """ManiSkill's PushCube-v1 from states, without a renderer, actions in end-effector deltas."""
    warnings.filterwarnings("ignore")
    import sapien
    import torch

    class NoMaterial:
        """Stands in for a renderer's material: accepts everything and knows nothing."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __getattr__(self, name: str) -> None:
            return None

        def __getitem__(self, index: Any) -> tuple[float, ...]:
            return (1.0,) * 4

    for module in (sapien.render, sapien.pysapien.render):
        module.RenderMaterial = NoMaterial
    torch.set_num_threads(1)
    import gymnasium
    import mani_skill.envs  # noqa: F401 (registers its environments)
    from mani_skill.utils.wrappers.gymnasium import CPUGymWrapper

    env = gymnasium.make(
        "PushCube-v1",
        obs_mode="state",
        control_mode="pd_ee_delta_pos",
        reward_mode="normalized_dense",
        render_backend="none",
        max_episode_steps=EPISODE,
        num_envs=1,
    )
    return gymnasium.wrappers.TimeLimit(CPUGymWrapper(env, ignore_terminations=True), EPISODE)


TASKS: dict[str, Callable[[], Any]] = {"reach": reach, "pushcube": pushcube}
