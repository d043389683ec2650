"""One ManiSkill task on the processor as an environment that depends on its ``StateId`` alone.

Runs in child processes, which share the ManiSkill that their zygote imported. All of it runs in
torch's inference mode: nobody asks a simulation for gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlinf_core.api import StateId, state_seed
from rlinf_plugin_maniskill.lean import shorten
from rlinf_plugin_maniskill.making import begin, building, flat, make_task
from rlinf_plugin_maniskill.rendering import Camera

shorten()


class ManiSkillEnvironment:
    """A task with ManiSkill's own observations, rewards and ends.

    Args:
        task: name of a task.
        options: what :func:`make_task` takes besides, among it what draws observed images.
        max_episode_steps: after which an episode is truncated.
        end_on_success: whether a solved task terminates, besides a failed one.
        instruction: what the robot is told, beside images.
        frames: arguments of the :class:`Camera` that draws frames.
    """

    def __init__(
        self,
        task: str,
        options: Mapping[str, Any],
        max_episode_steps: int,
        end_on_success: bool = True,
        instruction: str = "",
        frames: Mapping[str, Any] | None = None,
    ) -> None:
        self._name, self._limit, self._end_on_success = task, max_episode_steps, end_on_success
        self._instruction = instruction
        self._camera = Camera(task, options, **(frames or {}))
        self._backend = options.get("render_backend", "none")
        self._begun, self._played = StateId("", 0), list[np.ndarray]()
        with torch.inference_mode():
            self._task = make_task(task, **options)
        self._parts, self.width = robots(self._task)

    @property
    def render_note(self) -> str:
        """Why :meth:`render` returns None."""
        return self._camera.note

    @torch.inference_mode()
    def reset(self, state: StateId) -> dict[str, Any]:
        """Start the episode of ``state``."""
        with building(self._name, self._backend):
            observation = begin(self._task, state_seed(state, 31))
        self._begun, self._played = state, []
        return self._look(observation)

    @torch.inference_mode()
    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, bool]:
        """Do one step of ``action``, float32 [A]."""
        self._played.append(action)
        observation, reward, _, _, info = self._task.step(by_robot(action, self._parts))
        success, failure = bool(info.get("success", False)), bool(info.get("fail", False))
        terminated = failure or (success and self._end_on_success)
        truncated = len(self._played) >= self._limit
        return self._look(observation), float(reward), terminated, truncated, success

    @torch.inference_mode()
    def render(self) -> np.ndarray | None:
        """Return a frame, uint8 [H, W, 3], or None where nothing can draw it."""
        return self._camera.draw(self._task, self._begun)

    def state_dict(self) -> dict[str, Any]:
        """Return what the running episode needs to go on: its initial state and its actions."""
        played = np.stack(self._played) if self._played else None
        return {"state": [self._begun.split, self._begun.index], "actions": played}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, bit for bit, by playing the episode again.

        What PhysX keeps between two steps (contacts, the solver's warm start) cannot be set, and an
        episode depends on nothing but its initial state and its actions.
        """
        self.reset(StateId(*saved["state"]))
        for action in () if saved["actions"] is None else saved["actions"]:
            self.step(action)

    def close(self) -> None:
        """Free the task."""
        self._task.close()
        self._camera.close()

    def _look(self, observation: Any) -> dict[str, Any]:
        if isinstance(observation, torch.Tensor):
            return {"state": observation[0].numpy()}
        return {
            "state": flat({key: observation[key] for key in ("agent", "extra")})[0].numpy(),
            "images": {
                camera: data["rgb"][0].numpy()
                for camera, data in observation["sensor_data"].items()
            },
            "task": self._instruction,
        }


def robots(task: Any) -> tuple[dict[str, slice] | None, int]:
    """Return where in an action each of several robots' part is, and the action's width."""
    space, parts, start = task.single_action_space, {}, 0
    if not hasattr(space, "spaces"):
        return None, space.shape[0]
    for name, part in space.spaces.items():
        parts[name] = slice(start, start + part.shape[0])
        start += part.shape[0]
    return parts, start


def by_robot(action: np.ndarray, parts: dict[str, slice] | None) -> Any:
    """Return an action [..., A] as ManiSkill takes it."""
    if parts is None:
        return action
    return {name: action[..., part] for name, part in parts.items()}
