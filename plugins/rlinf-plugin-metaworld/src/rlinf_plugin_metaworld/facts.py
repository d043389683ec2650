"""What can be said about a task without importing Meta-World; a test compares all 50 with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf_core.api import Capability, Facts, Level, Spaces
from rlinf_plugin_metaworld.config import MetaWorldConfig

STATE_WIDTH = 39
"""Hand, gripper and objects now (18) and one step ago (18), and the goal (3)."""
ACTION_WIDTH = 4
"""A shift of the hand in x, y and z, and the closing force of the gripper."""


def make_spaces(config: MetaWorldConfig) -> Spaces:
    """Return the spaces that all tasks share. Object coordinates have no bounds in Meta-World."""
    shown: dict[str, Any] = {"state": spaces.Box(-np.inf, np.inf, (STATE_WIDTH,), np.float32)}
    if config.images:
        image = spaces.Box(0, 255, (config.image_size, config.image_size, 3), np.uint8)
        shown["images"] = spaces.Dict(dict.fromkeys(config.images, image))
        shown["task"] = spaces.Text(1000)
    action = spaces.Box(-1.0, 1.0, (ACTION_WIDTH,), np.float32)
    return Spaces(observation=spaces.Dict(shown), action=action)


def facts(config: MetaWorldConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the facts of a configured task."""
    seen = Level.FULL if config.images else Level.UNSUPPORTED
    return Facts(
        parameters=0,
        bytes=0,
        spaces=make_spaces(config),
        capabilities=dict.fromkeys((Capability.IMAGES, Capability.INSTRUCTION), seen),
        conventions={"image_rotation": "0"} if config.images else {},
    )
