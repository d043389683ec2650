"""What can be said about a configured task without importing ManiSkill."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf_core.api import Capability, Facts, Level, Spaces, Unknown
from rlinf_plugin_maniskill import tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig


def facts(config: ManiSkillConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the facts of a configured task."""
    levels = {
        Capability.IMAGES: _level(config.observation == "rgb"),
        Capability.INSTRUCTION: _level(config.observation == "rgb"),
        Capability.RENDER: _level(config.render_backend != "none"),
    }
    task = tasks.known(config.task, config.robot)
    if task is None:
        levels[Capability.SUCCESS] = Level.UNKNOWN
        reason = f"what {config.task} shows is found when it is made"
        return Facts(parameters=0, spaces=Unknown(reason), capabilities=levels)
    levels[Capability.SUCCESS] = _level(task.success)
    return Facts(parameters=0, spaces=make_spaces(config, task), capabilities=levels)


def make_spaces(config: ManiSkillConfig, task: tasks.Task) -> Spaces:
    """Return the spaces of a configured task; several robots' actions stand one after the other."""
    modes = task.modes[config.control_mode or task.control_mode]
    parts = task.modes[task.control_mode]
    controllers = sum(mode.state for mode in modes) - sum(mode.state for mode in parts)
    width = (task.state if config.observation == "state" else task.sensed) + controllers
    shown: dict[str, spaces.Space[Any]] = {
        "state": spaces.Box(-np.inf, np.inf, (width,), np.float32)
    }
    if config.observation == "rgb":
        image = spaces.Box(0, 255, (config.image_height, config.image_width, 3), np.uint8)
        shown["images"] = spaces.Dict(dict.fromkeys(task.cameras, image))
        shown["task"] = spaces.Text(512)
    low = np.concatenate([np.full(mode.width, mode.low, np.float32) for mode in modes])
    high = np.concatenate([np.full(mode.width, mode.high, np.float32) for mode in modes])
    return Spaces(observation=spaces.Dict(shown), action=spaces.Box(low, high, dtype=np.float32))


def instruction(config: ManiSkillConfig) -> str:
    """Return what the robot is told: "PushCube-v1" is "push cube"."""
    if config.instruction is not None:
        return config.instruction
    name = config.task.rpartition(":")[2].partition("-v")[0]
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower()


def _level(there: bool) -> Level:
    return Level.FULL if there else Level.UNSUPPORTED
