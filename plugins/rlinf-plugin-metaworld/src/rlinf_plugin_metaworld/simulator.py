"""The component's target: N Meta-World environments over a few processes."""

from __future__ import annotations

import os

from rlinf_core.api import EnvSlots, ProcessSimulator
from rlinf_plugin_metaworld.config import MetaWorldConfig
from rlinf_plugin_metaworld.facts import make_spaces


def make_simulator(config: MetaWorldConfig, slots: EnvSlots) -> ProcessSimulator:
    """Return a simulator of ``config.task``; its processes start in the background."""
    return ProcessSimulator(
        slots,
        make_spaces(config),
        "rlinf_plugin_metaworld.environment:MetaWorldEnvironment",
        {
            "task": config.task,
            "max_episode_steps": config.max_episode_steps,
            "camera": config.camera,
            "height": config.render_height,
            "width": config.render_width,
            "library": os.environ.get("MUJOCO_GL", ""),
            "images": config.images,
            "image_size": config.image_size,
            "instruction": config.instruction or config.task.removesuffix("-v3").replace("-", " "),
        },
        states={"train": config.train_states, "test": config.test_states},
        processes=config.processes,
        imports=["rlinf_plugin_metaworld.environment"],
        # Else importing MuJoCo loads OpenGL, before the fork and for those who draw nothing.
        variables={"MUJOCO_GL": "disable"},
        frame=(config.render_height, config.render_width),
    )
