"""Options of the logger ``tensorboard``. A new option goes here, with its help below it."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import Field, field_validator

from rlinf_core.api import Config


class TensorBoardConfig(Config):
    """Files for TensorBoard, below the run's folder."""

    folder: str = "tensorboard"
    """Where to write, below the run's folder."""

    video_frames: int = Field(default=100, ge=1, le=10_000)
    """Most pictures of a video that are kept, evenly spread over it."""

    video_width: int = Field(default=480, ge=16, le=65_536)
    """Widest picture of a video, in pixels; wider ones are made smaller."""

    @field_validator("folder")
    @classmethod
    def _below_the_run(cls, folder: str) -> str:
        path = PurePosixPath(folder)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ValueError(
                f"folder {folder!r} is not below the run's folder; wanted a name such as "
                "'tensorboard'"
            )
        return folder
