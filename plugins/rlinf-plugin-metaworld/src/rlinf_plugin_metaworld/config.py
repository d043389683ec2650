"""The options of the ``metaworld`` section of a run file. Imports no simulator and no torch."""

from __future__ import annotations

from pydantic import Field, field_validator

from rlinf_core.api import Config, did_you_mean

_NAMES = """
assembly basketball bin-picking box-close button-press button-press-topdown
button-press-topdown-wall button-press-wall coffee-button coffee-pull coffee-push dial-turn
disassemble door-close door-lock door-open door-unlock drawer-close drawer-open faucet-close
faucet-open hammer hand-insert handle-press handle-press-side handle-pull handle-pull-side
lever-pull peg-insert-side peg-unplug-side pick-out-of-hole pick-place pick-place-wall plate-slide
plate-slide-back plate-slide-back-side plate-slide-side push push-back push-wall reach reach-wall
shelf-place soccer stick-pull stick-push sweep sweep-into window-close window-open
"""
TASKS: tuple[str, ...] = tuple(f"{name}-v3" for name in _NAMES.split())
"""The 50 tasks; a test compares them with the installed Meta-World."""

CAMERAS: tuple[str, ...] = (
    "corner",
    "corner2",
    "corner3",
    "corner4",
    "topview",
    "behindGripper",
    "gripperPOV",
)
"""The cameras that every task's scene has."""


class MetaWorldConfig(Config):
    """One Meta-World task with its goal in the observation, as in the MT1 benchmark."""

    task: str = Field(default="reach-v3", json_schema_extra={"enum": list(TASKS)})
    """Name of the task, such as "reach-v3" or "door-open-v3"."""

    max_episode_steps: int = Field(default=500, ge=1, le=500)
    """Steps after which an episode is truncated. Meta-World itself allows 500."""

    processes: int | None = Field(default=None, ge=1, le=1024)
    """Processes that share the environments. By default one per processor."""

    train_states: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Number of initial states to train on; they are made when needed, so many cost nothing."""

    test_states: int = Field(default=100, ge=1, le=1_000_000_000)
    """Number of initial states to evaluate on; none of them is a training state."""

    images: tuple[str, ...] = ()
    """Cameras whose images are observed, with the task's instruction, for models that see and read.
    They need OSMesa or EGL. Empty, nothing is drawn unless a video is asked for."""

    image_size: int = Field(default=224, ge=16, le=2048)
    """Side of observed images in pixels."""

    instruction: str | None = Field(default=None, min_length=1, max_length=1000)
    """What a model is told to do; by default the task's name in words, such as "pick place"."""

    camera: str = Field(default="corner4", json_schema_extra={"enum": list(CAMERAS)})
    """Camera of rendered frames."""

    render_height: int = Field(default=256, ge=16, le=2048)
    """Height of rendered frames in pixels."""

    render_width: int = Field(default=256, ge=16, le=2048)
    """Width of rendered frames in pixels."""

    @field_validator("task")
    @classmethod
    def _task_exists(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"Meta-World has no task {task!r}.{did_you_mean(task, TASKS)}")
        return task

    @field_validator("camera", "images")
    @classmethod
    def _cameras_exist(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for camera in (given,) if isinstance(given, str) else given:
            if camera not in CAMERAS:
                near = did_you_mean(camera, CAMERAS)
                raise ValueError(f"no camera {camera!r}; there are {', '.join(CAMERAS)}.{near}")
        return given
