"""Frames of a task, drawn where its environment runs and only when somebody asks for one.

ManiSkill builds a scene for a renderer or without one, and without one is faster to step, smaller
and runs anywhere. So an environment that nobody looks at has none; the first frame makes a second
task with a renderer, a *twin*, which is put into the state of the first and drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlinf_core.api import StateId, state_seed
from rlinf_plugin_maniskill.making import begin, make_task
from rlinf_plugin_maniskill.probe import find_device


class Camera:
    """Draws what the first of a task's cameras for people sees.

    Args:
        task: name of a task.
        options: what it was made with.
        render_backend: what draws; ``"none"`` draws nothing.
        height: of a frame in pixels.
        width: of a frame in pixels.
        shader: ManiSkill's name of a shader pack.
    """

    def __init__(
        self,
        task: str,
        options: Mapping[str, Any],
        render_backend: str = "gpu",
        height: int = 256,
        width: int = 256,
        shader: str = "minimal",
    ) -> None:
        self._backend = render_backend
        config = {"height": height, "width": width, "shader_pack": shader}
        self._options = {
            **options,
            "obs_mode": "state",
            "render_backend": render_backend,
            "human_render_camera_configs": config,
        }
        self._name = task
        self._twin: Any = None
        self._shown: StateId | None = None
        self.note = ""

    def draw(self, task: Any, state: StateId) -> np.ndarray | None:
        """Return uint8 [H, W, 3] of ``task`` in an episode of ``state``; None: see ``note``."""
        if self._backend == "none":
            self.note = "no frames: render_backend is none"
            return None
        if not task.scene.can_render():
            self.note = find_device(self._backend)
            if self.note:
                return None
            try:
                task = self._look_alike(task, state)
            except RuntimeError as error:  # a driver that is there and fails
                self.note = f"no frames: {error}"
                return None
        cameras = list(task.scene.human_render_cameras)
        if not cameras:
            self.note = f"no frames: {self._name} has no camera for people"
            return None
        return np.asarray(task.render_rgb_array(cameras[0])[0].cpu().numpy())

    def _look_alike(self, task: Any, state: StateId) -> Any:
        """Return a task that has a renderer, in the state of ``task``."""
        if self._twin is None:
            self._twin = make_task(self._name, **self._options)
        if self._shown != state:
            begin(self._twin, state_seed(state, 31))  # its scene may be of another shape
            self._shown = state
        self._twin.set_state_dict(task.get_state_dict())
        return self._twin

    def close(self) -> None:
        """Free what draws."""
        if self._twin is not None:
            self._twin.close()
