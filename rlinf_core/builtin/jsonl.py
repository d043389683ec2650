"""The ``jsonl`` logger: one JSON object a line in ``metrics.jsonl``.

``metrics`` holds what a run with the same seed repeats exactly, ``time`` what it does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinf_core.files import finite, write_text
from rlinf_core.protocols.logger import RunInfo


class JsonlLogger:
    """Appends each step's metrics.

    Args:
        config: it has no options.
        info: the run; when it resumes, lines of later steps of the earlier try are dropped.
    """

    def __init__(self, config: Any, info: RunInfo) -> None:
        path = info.folder / "metrics.jsonl"
        if path.exists():
            write_text(path, "".join(f"{line}\n" for line in _kept(path, info.first_step)))
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a line and hand it to the system at once."""
        line = {
            "step": step,
            "metrics": {k: v for k, v in metrics.items() if not k.startswith("time/")},
            "time": {k.removeprefix("time/"): v for k, v in metrics.items() if k[:5] == "time/"},
        }
        self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
        self._file.flush()

    def message(self, text: str) -> None:
        """Keep nothing: messages are for people."""

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Keep nothing: the file itself is there."""

    def close(self, outcome: str) -> None:
        """Close the file."""
        self._file.close()


def _kept(path: Path, first_step: int) -> list[str]:
    """Return the whole lines of steps that the resumed run will not repeat."""
    return [line for line, step in read_lines(path) if step["step"] <= first_step]


def read_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return each whole line of a ``metrics.jsonl`` and what it holds; others are passed over.

    A run that was killed leaves half a line, and a person may have edited the file.
    """
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        whole = isinstance(data, dict) and isinstance(data.get("metrics"), dict)
        if whole and isinstance(data.get("step"), int):
            found.append((line, data))
    return found
