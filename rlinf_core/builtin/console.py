"""The ``console`` logger: progress on standard error, live where it is a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rlinf_core.builtin.config import ConsoleConfig
from rlinf_core.protocols.logger import RunInfo

_SHOWN = (
    ("episode/success_once", "success", "{:.0%}"),
    ("episode/return", "return", "{:.1f}"),
    ("train/approx_kl", "kl", "{:.4f}"),
    ("time/env_steps_per_s", "steps/s", "{:.0f}"),
)


class ConsoleLogger:
    """Shows one run.

    Args:
        config: its options.
        info: the run.
    """

    def __init__(self, config: ConsoleConfig, info: RunInfo) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._every = config.every
        self._total = info.total_steps
        self._last = float("-inf")
        self._began = time.monotonic()
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn(info.name, markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[line]}", markup=False),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._progress.start()
            self._task = self._progress.add_task(
                "", total=info.total_steps, completed=info.first_step, line="starting"
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a step: always in a terminal, else now and then, and the first and last."""
        line = "  ".join(
            f"{label} {form.format(metrics[name])}"
            for name, label, form in _SHOWN
            if name in metrics and metrics[name] == metrics[name]
        )
        if self._progress is not None:
            self._progress.update(self._task, completed=step, line=line)
            return
        now = time.monotonic()
        if now - self._last >= self._every or step == self._total:
            self._last = now
            seconds = now - self._began
            self._print(f"[{seconds:6.1f} s] iteration {step}/{self._total}  {line}")

    def message(self, text: str) -> None:
        """Show a line."""
        self._print(text)

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Say that a file was made."""
        self._print(f"{name}: {path}")

    def close(self, outcome: str) -> None:
        """Take the live line away."""
        if self._progress is not None:
            self._progress.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
