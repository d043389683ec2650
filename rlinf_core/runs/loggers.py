"""Loggers of a run, behind one face."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlinf_core.config.validate import Run
from rlinf_core.errors import PluginError
from rlinf_core.plugins.resolve import describe, load
from rlinf_core.protocols.logger import RunInfo, RunLogger


class Loggers:
    """Every logger of a run behind one face.

    Messages that come before :meth:`open` are shown then: until a run is known to work, nothing
    is written into its folder. A logger that fails later is left out from there on, as standard
    error is told: no run stops because somebody's service does.

    Raises:
        PluginError: a logger cannot be imported, or (at :meth:`open`) made.
    """

    def __init__(self, run: Run) -> None:
        self._makers = [(describe(c.component), load(c.component), c.config) for c in run.loggers]
        self._all: dict[str, RunLogger] = {}
        self._early: list[str] | None = []

    def open(self, info: RunInfo) -> None:
        """Make the loggers."""
        for number, (who, make, config) in enumerate(self._makers):
            try:
                name = f"{who}, number {number}" if who in self._all else who
                self._all[name] = make(config, info)
            except Exception as error:
                raise PluginError(f"{who} cannot start: {type(error).__name__}: {error}") from error
        early, self._early = self._early or [], None
        for text in early:
            self.message(text)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand on the metrics of one step."""
        self._tell(lambda logger: logger.log(step, dict(metrics)))  # its own to change

    def message(self, text: str) -> None:
        """Hand on a line meant for a person."""
        if self._early is not None:
            self._early.append(text)
        self._tell(lambda logger: logger.message(text))

    def artifact(self, step: int, name: str, path: Path) -> None:
        """Hand on a file that the run made."""
        self._tell(lambda logger: logger.artifact(step, name, path))

    def close(self, outcome: str) -> None:
        """End every logger."""
        _complain(self._early or [])  # the run was refused before anything could show them
        self._tell(lambda logger: logger.close(outcome))
        self._all = {}

    def _tell(self, call: Callable[[RunLogger], None]) -> None:
        failures = []
        for who, logger in list(self._all.items()):
            try:
                call(logger)
            except Exception as error:
                del self._all[who]
                failures.append(f"{who} failed and is left out: {type(error).__name__}: {error}")
        _complain(failures)


def _complain(lines: Sequence[str]) -> None:
    with suppress(OSError):  # not even standard error may stop a run
        for text in lines:
            print(text, file=sys.stderr)
