"""One Meta-World task as an environment whose episodes depend on their ``StateId`` alone.

A plain task carries much from one episode into the next: positions of bodies and sites in the
model, some forty attributes, the solver's warm start. Here everything an episode can change is put
back before the next one begins, so an episode equals the first one of a new process.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from rlinf_core.api import StateId, state_seed
from rlinf_plugin_metaworld.lean import INTEGRATION, make_task, physics
from rlinf_plugin_metaworld.rendering import Camera

_MODEL_ARRAYS = ("body_pos", "site_pos")  # all that a task writes; a test compares whole models


class MetaWorldEnvironment:
    """A task with its goal in the observation, as ``gym.make("Meta-World/MT1", env_name=task)``.

    The start of an episode is drawn as MT1 draws those of its tasks, but from the seed of its
    ``StateId`` instead of 50 times in advance.

    Args:
        task: such as ``"reach-v3"``.
        max_episode_steps: 1 to 500, after which an episode is truncated.
        camera, height, width: of rendered frames, in pixels.
        library: the user's MUJOCO_GL, or empty.
        images: cameras whose images are observed, with the instruction.
        image_size: side of these images, in pixels.
        instruction: what to do, in words.
    """

    def __init__(
        self,
        task: str,
        max_episode_steps: int = 500,
        camera: str = "corner4",
        height: int = 256,
        width: int = 256,
        library: str = "",
        images: Sequence[str] = (),
        image_size: int = 224,
        instruction: str = "",
    ) -> None:
        self._task, self._limit = make_task(task), max_episode_steps
        self._camera = Camera(camera, height, width, library)
        self._seen = {name: Camera(name, image_size, image_size, library) for name in images}
        self._instruction = instruction
        self._state = StateId("", 0)
        self._model = {name: getattr(self._task.model, name).copy() for name in _MODEL_ARRAYS}
        self._physics = physics(self._task)
        self._attributes = dict(vars(self._task))  # never handed out, only copies of them

    @property
    def render_note(self) -> str:
        """Why :meth:`render` returns None."""
        return self._camera.note

    def reset(self, state: StateId) -> dict[str, Any]:
        """Start the episode of ``state``; returns ``state`` float64 [39] and what is seen."""
        task = self._task
        self._put_back()
        task.np_random = np.random.default_rng(state_seed(state))
        task._freeze_rand_vec = False
        task.reset_model()  # draws until the task is content, as MT1 does in advance
        start = task._last_rand_vec
        self._put_back()  # also because the hand's way from here is remembered
        task._freeze_rand_vec, task._last_rand_vec = True, start
        observation, _ = task.reset()
        self._state = state
        return self._observe(observation)

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, bool]:
        """Do one step. Meta-World never terminates: success may be lost again."""
        task = self._task
        observation, reward, _, _, info = task.step(action)
        truncated = task.curr_path_length >= self._limit
        seen = self._observe(observation)
        return seen, float(reward), False, truncated, bool(info["success"])

    def render(self) -> np.ndarray | None:
        """Return an upright frame, uint8 [H, W, 3], or None where nothing can draw it."""
        return self._camera.draw(self._task.model, self._task.data)

    def _observe(self, state: np.ndarray) -> dict[str, Any]:
        if not self._seen:
            return {"state": state}
        return {"state": state, "images": _Images(self), "task": self._instruction}

    def draw(self, camera: str) -> np.ndarray:
        """Return an upright image, uint8 [S, S, 3], of an observed camera.

        Raises:
            RuntimeError: nothing on this machine can draw.
        """
        seen = self._seen[camera]
        image = seen.draw(self._task.model, self._task.data)
        if image is None:
            raise RuntimeError(f"{seen.note}; or observe no images: simulator.images=[]")
        return image

    def state_dict(self) -> dict[str, Any]:
        """Return what the running episode needs to go on: arrays and plain data, a few KiB."""
        return {
            "state": [self._state.split, self._state.index],
            "model": {name: getattr(self._task.model, name).copy() for name in _MODEL_ARRAYS},
            "physics": physics(self._task),
            "attributes": {k: _own(v) for k, v in vars(self._task).items() if _is_data(v)},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, bit for bit."""
        self.reset(StateId(*saved["state"]))  # makes the attributes that are live views
        vars(self._task).update({k: _own(v) for k, v in saved["attributes"].items()})
        self._set(saved["model"], saved["physics"])

    def close(self) -> None:
        """Free the task."""
        self._task.close()

    def _put_back(self) -> None:
        attributes = vars(self._task)
        attributes.clear()
        attributes.update({k: _own(v) for k, v in self._attributes.items()})
        mujoco.mj_resetData(self._task.model, self._task.data)
        self._set(self._model, self._physics)

    def _set(self, model_arrays: Mapping[str, np.ndarray], state: np.ndarray) -> None:
        model, data = self._task.model, self._task.data
        for name, values in model_arrays.items():
            getattr(model, name)[...] = values
        mujoco.mj_setState(model, data, state, INTEGRATION)
        mujoco.mj_forward(model, data)  # derives the rest, and moves the warm start
        mujoco.mj_setState(model, data, state, INTEGRATION)


class _Images(Mapping[str, np.ndarray]):
    """Images by camera, drawn when they are read: of a chunk of actions only the last are."""

    def __init__(self, environment: MetaWorldEnvironment) -> None:
        self._environment = environment

    def __getitem__(self, camera: str) -> np.ndarray:
        return self._environment.draw(camera)

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment._seen)

    def __len__(self) -> int:
        return len(self._environment._seen)


def _is_data(value: Any) -> bool:
    """Tell values from live parts: views into the simulation, spaces, MuJoCo's objects."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return value.base is None
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _own(value: Any) -> Any:
    """Copy what could be changed in place; leave live parts live."""
    if isinstance(value, np.ndarray | list | dict) and _is_data(value):
        return copy.deepcopy(value)
    return value
