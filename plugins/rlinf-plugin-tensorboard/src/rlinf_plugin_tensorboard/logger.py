"""The logger ``tensorboard``: what a run reports, as TensorBoard's scalars, images and text.

What a logger must do is stated in ``rlinf_core.protocols.logger``. Another kind of summary is one
more function at the end of this file; how files are written is in ``events.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata

from rlinf_core.api import RunInfo
from rlinf_plugin_tensorboard.config import TensorBoardConfig
from rlinf_plugin_tensorboard.events import EventFile
from rlinf_plugin_tensorboard.pictures import image_of


class TensorBoardLogger:
    """Writes one try at a run.

    Args:
        config: its options.
        info: the run; when it resumes, what an earlier try wrote of later steps is dropped by
            whoever reads the files.
    """

    def __init__(self, config: TensorBoardConfig, info: RunInfo) -> None:
        self._config = config
        self._events = EventFile(info.folder / config.folder, info.first_step)
        text = json.dumps(info.config, indent=2, default=str)
        about = [_text("run/config", f"```\n{text}\n```")]
        if not self._events.resumed:  # readers keep the first, and take a second for a mistake
            about.append(hparams_pb(dict(_flat(info.config)), trial_id=info.name))
        self._events.add(info.first_step, *about)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a step's metrics as one record; one that is NaN or None has no value to show."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if value is not None and value == value
        ]
        if values:
            self._events.add(step, Summary(value=values))

    def message(self, text: str) -> None:
        """Keep nothing: messages are for people."""

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Show a picture or a video; of another file, or one that cannot be read, say where it is.

        What goes wrong here stops no run: the file itself is there.
        """
        try:
            image = image_of(path, self._config.video_frames, self._config.video_width)
            note = f"`{path}`"
        except Exception as error:
            image, note = None, f"`{path}` cannot be shown: {error}"
        if image is None:
            self._events.add(step, _text(name, note))
        else:
            self._events.add(step, Summary(value=[Summary.Value(tag=name, image=image)]))

    def close(self, outcome: str) -> None:
        """Close the file."""
        self._events.close()


def _text(tag: str, text: str) -> Summary:
    """Return Markdown as a summary."""
    tensor = TensorProto(
        dtype=DT_STRING,
        string_val=[text.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    metadata = create_summary_metadata(display_name=None, description=None)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of what TensorBoard takes as a hyperparameter; None is none."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{prefix}{key}", value
        elif value is not None:
            yield f"{prefix}{key}", json.dumps(value, default=str)
