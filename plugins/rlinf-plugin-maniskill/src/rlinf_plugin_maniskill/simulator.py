"""The component's target: N environments of a ManiSkill task."""

from __future__ import annotations

from typing import Any

from rlinf_core.api import EnvSlots, ProcessSimulator, SimulatorError
from rlinf_plugin_maniskill import tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.facts import instruction, make_spaces
from rlinf_plugin_maniskill.probe import find_device


def make_simulator(config: ManiSkillConfig, slots: EnvSlots) -> ProcessSimulator:
    """Return a simulator of ``config.task``; its processes start in the background.

    Raises:
        SimulatorError: images are asked for and nothing can draw them, or a task that is not in
            the table cannot be made.
    """
    if config.observation == "rgb" and (note := find_device(config.render_backend)):
        raise SimulatorError(f"observation rgb: {note}")
    task = tasks.measured(config.task, config.robot)
    spaces = make_spaces(config, task)
    states = {"train": config.train_states, "test": config.test_states}
    limit = config.max_episode_steps or task.max_episode_steps
    if limit is None:
        raise SimulatorError(f"{config.task} has no time limit of its own; set max_episode_steps")
    return ProcessSimulator(
        slots,
        spaces,
        "rlinf_plugin_maniskill.environment:ManiSkillEnvironment",
        {
            "task": config.task,
            "options": make_options(config),
            "max_episode_steps": limit,
            "end_on_success": config.end_on_success,
            "instruction": instruction(config),
            "frames": {
                "render_backend": config.render_backend,
                "height": config.render_height,
                "width": config.render_width,
                "shader": config.shader,
            },
        },
        states=states,
        processes=config.processes,
        imports=["rlinf_plugin_maniskill.environment"],
        frame=(config.render_height, config.render_width),
    )


def make_options(config: ManiSkillConfig) -> dict[str, Any]:
    """Return the options of ManiSkill's task."""
    options: dict[str, Any] = {
        "obs_mode": config.observation,
        "robot_uids": config.robot,
        "control_mode": config.control_mode,
        "reward_mode": config.reward_mode,
    }
    if config.observation == "state":
        return {**options, "render_backend": "none"}
    size = {"height": config.image_height, "width": config.image_width}
    frame = {"height": config.render_height, "width": config.render_width}
    shader = {"shader_pack": config.shader}
    return {
        **options,
        "render_backend": config.render_backend,
        "sensor_configs": {**size, **shader},
        "human_render_camera_configs": {**frame, **shader},
    }
