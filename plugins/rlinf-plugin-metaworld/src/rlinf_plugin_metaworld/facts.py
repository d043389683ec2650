"""What can be said about a task without importing Meta-World; a test compares all 50 with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf_core.api import Facts, Spaces
from rlinf_plugin_metaworld.config import MetaWorldConfig

STATE_WIDTH = 39
"""Hand, gripper and objects now (18) and one step ago (18), and the goal (3)."""
ACTION_WIDTH = 4
"""A shift of the hand in x, y and z, and the closing force of the gripper."""


def make_spaces() -> Spaces:
    """Return the spaces that all tasks share. Object coordinates have no bounds in Meta-World."""
    state = spaces.Box(-np.inf, np.inf, (STATE_WIDTH,), np.float32)
    action = spaces.Box(-1.0, 1.0, (ACTION_WIDTH,), np.float32)
    return Spaces(observation=spaces.Dict({"state": state}), action=action)


def facts(config: MetaWorldConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the facts of a configured task."""
    return Facts(parameters=0, bytes=0, spaces=make_spaces())
