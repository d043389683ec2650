"""The logger ``sketch``."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinf_core.api import RunInfo
from rlinf_plugin_sketch.config import SketchConfig


class SketchLogger:
    """Appends rows to ``metrics.csv`` in the run's folder."""

    def __init__(self, config: SketchConfig, info: RunInfo) -> None:
        path = info.folder / "metrics.csv"
        rows = rows_up_to(path, info.first_step)
        self._every = config.every
        self._file = path.open("w", newline="", encoding="utf-8")
        # Metrics that are no column are left out; a column that is no metric stays empty.
        self._writer = csv.DictWriter(self._file, ["step", *config.columns], extrasaction="ignore")
        self._writer.writeheader()
        self._writer.writerows(rows)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of one iteration."""
        if step % self._every == 0:
            self._writer.writerow({"step": step, **metrics})
            self._file.flush()

    def message(self, text: str) -> None:
        """Keep nothing: messages are for people."""

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Keep nothing: the file itself is there."""

    def close(self, outcome: str) -> None:
        """Close the file."""
        self._file.close()


def rows_up_to(path: Path, step: int) -> list[dict[str, Any]]:
    """Return the rows of an earlier try that a resumed run does not repeat."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if int(row["step"]) <= step]
