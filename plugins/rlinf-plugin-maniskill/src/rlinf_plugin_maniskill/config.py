"""The options of the ``maniskill`` section of a run file. Imports no simulator and no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from rlinf_core.api import Config, did_you_mean
from rlinf_plugin_maniskill import tasks

TASKS: tuple[str, ...] = tuple(tasks.names())
"""All tasks that ManiSkill registers; some need files that it downloads."""


class ManiSkillConfig(Config):
    """One ManiSkill task."""

    task: str = "PushCube-v1"
    """Name of the task, such as "PushCube-v1"; "module:Name-v1" imports ``module`` first, which
    registers it."""

    robot: str | None = None
    """Another robot than the task's own, by ManiSkill's name, such as "fetch"."""

    control_mode: str | None = None
    """What actions mean, such as "pd_joint_delta_pos" or "pd_ee_delta_pose"; null takes what the
    robot lists first."""

    observation: Literal["state", "rgb"] = "state"
    """"state": all that the simulation knows, in one vector, and no renderer. "rgb": an image of
    each camera and the robot's own joints, which needs a Vulkan device."""

    reward_mode: Literal["normalized_dense", "dense", "sparse", "none"] | None = None
    """Which of the task's rewards; "normalized_dense" is at most about 1 a step. Null takes the
    first that the task has, in this order."""

    end_on_success: bool = True
    """Whether solving the task ends the episode, as ManiSkill has it. With false it goes on to the
    time limit: with a dense reward an early end is a loss, which a policy learns to put off."""

    max_episode_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    """Steps after which an episode is truncated; null is ManiSkill's own limit."""

    instruction: str | None = None
    """What the robot is told, with "rgb"; null is the task's name in words ("push cube")."""

    render_backend: str = "gpu"
    """What draws: "gpu" is a GPU, or the processor where there is none; "cpu"; ManiSkill's name of
    a device, such as "cuda:1"; "none" draws nothing."""

    shader: str = "minimal"
    """ManiSkill's shader pack of observed images and frames, such as "minimal" or "default"."""

    image_height: int = Field(default=128, ge=16, le=2048)
    """Height of observed images in pixels."""

    image_width: int = Field(default=128, ge=16, le=2048)
    """Width of observed images in pixels."""

    render_height: int = Field(default=256, ge=16, le=2048)
    """Height of a video's frames in pixels."""

    render_width: int = Field(default=256, ge=16, le=2048)
    """Width of a video's frames in pixels."""

    processes: int | None = Field(default=None, ge=1, le=1024)
    """Processes that share the environments. By default one per processor."""

    train_states: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Number of initial states to train on; they are made when needed, so many cost nothing."""

    test_states: int = Field(default=100, ge=1, le=1_000_000_000)
    """Number of initial states to evaluate on; none of them is a training state."""

    @field_validator("task")
    @classmethod
    def _task_exists(cls, task: str) -> str:
        if ":" not in task and task not in TASKS:
            near = did_you_mean(task, TASKS)
            raise ValueError(f"ManiSkill has no task {task!r}.{near}")
        return task

    @model_validator(mode="after")
    def _task_has_it(self) -> Self:
        task = tasks.known(self.task, self.robot)
        if task is None:
            return self  # it is seen when the task is made
        if self.control_mode is not None and self.control_mode not in task.modes:
            near = did_you_mean(self.control_mode, task.modes)
            raise ValueError(
                f"{' and '.join(task.robots)} in {self.task} has no control_mode "
                f"{self.control_mode!r}; there are {', '.join(task.modes)}.{near}"
            )
        if self.reward_mode is not None and self.reward_mode not in task.rewards:
            raise ValueError(
                f"{self.task} has no reward_mode {self.reward_mode!r}; it has "
                f"{', '.join(task.rewards)}"
            )
        if self.observation == "rgb" and not task.cameras:
            raise ValueError(f"{self.task} has no camera; wanted observation: state")
        return self

    @model_validator(mode="after")
    def _can_draw(self) -> Self:
        if self.observation == "rgb" and self.render_backend == "none":
            raise ValueError('observation "rgb" needs a renderer, and render_backend is "none"')
        return self
