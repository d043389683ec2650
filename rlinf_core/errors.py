"""Every error the core raises on purpose. Each says what was found, what was wanted, what to do.

Add a class here when a caller must be able to tell the fault apart; else raise an existing one
with a better sentence. ``exit_code`` is what the command line ends with: 2 where the request was
wrong, 1 where the run failed.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a request, as data; a :class:`ConfigError` carries several.

    Attributes:
        path: dotted path of the option in question; empty where there is none.
        found: what was found.
        wanted: what was wanted; empty where ``found`` says it all.
        suggestions: overrides, ``key=value``, each of which alone makes this problem go away.
        origin: where the option was given: ``FILE:LINE``, "command line"; empty if not known.
    """

    path: str
    found: str
    wanted: str = ""
    suggestions: tuple[str, ...] = ()
    origin: str = ""

    @property
    def text(self) -> str:
        """What was found and wanted, in a sentence."""
        return ", ".join(part for part in (self.found, self.wanted) if part)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, self.path, self.text) if part)


class RlinfError(Exception):
    """Base of all errors raised on purpose; its text is meant for a person to read."""

    exit_code = 1


class RequestError(RlinfError):
    """What was asked for cannot be done as asked; nothing was started or changed."""

    exit_code = 2


class ConfigError(RequestError):
    """A run file, group or override is wrong. One error may carry several findings."""

    def __init__(self, findings: Iterable[str | Problem]) -> None:
        given = tuple(findings)
        self.problems = tuple(f if isinstance(f, Problem) else Problem("", f) for f in given)
        self.findings = tuple(str(finding) for finding in given)
        self._given = given
        super().__init__("\n".join(self.findings))

    def __reduce__(self) -> Any:
        return type(self), (self._given,)


class PluginError(RequestError):
    """A selected component's plugin is broken, incompatible or disabled."""


class UnknownComponentError(RequestError):
    """No plugin provides the component that was named."""


class AmbiguousComponentError(RequestError):
    """Several distributions provide the component that was named."""


class CapabilityError(RequestError):
    """One component needs what another does not declare."""


class RLInputError(RlinfError, ValueError):
    """A tensor function was given something it must refuse: shapes, groups or values."""


class BatchError(RlinfError, ValueError):
    """A batch's parts do not fit together, or an index does not fit the batch."""


class MissingKeyError(BatchError, KeyError):
    """A batch has no entry of that name."""

    def __str__(self) -> str:  # KeyError would print the repr of the sentence
        return str(self.args[0])


class SimulatorError(RlinfError):
    """A simulator broke its contract or one of its processes failed."""


class WeightSyncError(RlinfError):
    """Weights that were sent and weights that were expected differ."""


class CheckpointError(RequestError):
    """A checkpoint, or any that is whole, cannot be read or does not fit."""


class WriteError(RlinfError, OSError):
    """A file cannot be written: no room, no right, a failing disk. What was there before stays."""


class CheckpointWriteError(WriteError):
    """A checkpoint cannot be written; the run ends, older checkpoints stay."""


class RuntimeFailure(RlinfError):
    """A worker, a channel or the runtime failed while a run was going on."""


class WorkerFailed(RuntimeFailure):
    """A worker raised, died or took too long.

    Attributes:
        group: name of its group.
        rank: its number in there.
        method: that it was at; "start" before any, "idle" between two.
        cause: why: what it raised, or a :class:`WorkerDied` or :class:`DeadlineExceeded`.
        log: the last lines that it wrote to its standard output and error; "" where it wrote none.
    """

    def __init__(
        self, group: str, rank: int, method: str, cause: BaseException, log: str = ""
    ) -> None:
        self.group, self.rank, self.method, self.cause, self.log = group, rank, method, cause, log
        if isinstance(cause, RequestError | WeightSyncError):  # what was asked for cannot work
            self.exit_code = 2
        said = f"\nIt said last:\n{textwrap.indent(log, '  ')}" if log else ""
        super().__init__(f"{group}[{rank}].{method} failed: {type(cause).__name__}: {cause}{said}")


class WorkerDied(RuntimeFailure):
    """A worker's process ended by itself or was killed; the text says by which signal or status."""


class DeadlineExceeded(RuntimeFailure):
    """A worker took longer for a call, or for its start, than it may; its process was killed."""


class ChannelClosed(RuntimeFailure):
    """A channel has ended: its producers closed it and it holds nothing more for this reader."""


class ProducerGone(RuntimeFailure):
    """A worker that wrote to a channel has failed, so what a reader waits for will not come."""


class StaleDataError(RuntimeFailure):
    """A channel holds data made by weights older than its reader accepts."""


class Deadlock(RuntimeFailure):
    """Every worker waits for another; the text lists who waits for what."""


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ``" Did you mean 'a' or 'b'?"`` for the closest known names, or ``""``."""
    matches = difflib.get_close_matches(name, sorted(set(known)), n=limit, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(m) for m in matches)}?" if matches else ""
