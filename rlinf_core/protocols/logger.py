"""RunLogger: shows or keeps what a run reports.

The target of a logger component is called as ``target(config, info)`` with a :class:`RunInfo`.
A logger that cannot reach its service must not stop a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class RunInfo:
    """What a logger may know of its run.

    Attributes:
        name: the run's name.
        folder: where the run writes; a logger keeps its files below it.
        config: the whole resolved configuration, plain data.
        first_step: 0, or the step a resumed run goes on from; later entries of an earlier try
            must be dropped.
        total_steps: the step at which the run ends.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    first_step: int
    total_steps: int


class RunLogger(Protocol):
    """Receives scalars and files. Steps never go backwards."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step. NaN means that there was nothing to measure."""
        ...

    def message(self, text: str) -> None:
        """Take a line meant for a person."""
        ...

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Take a file that the run made (a video, a picture); it lies below the run's folder."""
        ...

    def close(self, outcome: str) -> None:
        """End; ``outcome`` is "done", "failed" or "interrupted"."""
        ...
