"""The timeline of a run: who computed, waited, moved data and switched devices, and when.

A run writes ``timeline.json`` as it goes, in the Trace Event Format that Perfetto and Chrome open:
one event per line, so that a run that was killed leaves all but its last line readable. The same
file is read back here for ``rlinf trace``. Another number about it belongs to :func:`measure`, its
picture to ``picture.py``.

A *call* is a method of a worker; within it the worker waits (for an item, for room, for a device),
transfers (packs and unpacks items) or switches (offloads and onloads). What is left is computing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rlinf_core.errors import RequestError
from rlinf_core.protocols.runtime import Span

NAME = "timeline.json"
"""The file in a run's folder."""

MOST_EVENTS = 50_000
"""After so many events only whole calls are written, with the sums of what was within them."""

INNER = ("wait", "transfer", "switch")
"""The kinds of span within a call."""


class TimelineWriter:
    """Appends spans to a run's timeline; makes the file with the first.

    Args:
        path: the file; what an earlier try wrote is kept.
        devices: returns the devices of each worker there is, ``{"rollout[0]": ["cpu:2"]}``.
    """

    def __init__(self, path: Path, devices: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._path, self._devices = path, devices
        self._groups: dict[str, int] = {}
        self._workers: dict[str, tuple[int, int]] = {}
        self._written = 0
        # Spans carry the monotonic clock; the wall clock makes tries of one run comparable.
        self._offset = time.time_ns() - time.monotonic_ns()

    def write(self, spans: Sequence[Span]) -> None:
        """Append spans, each call before what was within it."""
        if not spans:
            return
        detailed = self._written < MOST_EVENTS
        workers = sorted({span.worker for span in spans} - self._workers.keys())
        events = [event for worker in workers for event in self._introduce(worker)]
        for call, within in _calls(spans):
            sums = {kind: _seconds(s for s in within if s.kind == kind) for kind in INNER}
            events.append(self._event(call, {**call.details, **sums, "detailed": detailed}))
            if detailed:
                events += [self._event(span, dict(span.details)) for span in within]
        text = "".join(f"{json.dumps(event)},\n" for event in events)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text if file.tell() else f"[\n{text}")
        self._written += len(events)

    def _introduce(self, worker: str) -> Iterator[dict[str, Any]]:
        """Yield what a viewer is told about a worker before its first span."""
        group, _, rank = worker.rstrip("]").partition("[")
        pid, tid = self._groups.setdefault(group, len(self._groups)), int(rank or 0)
        self._workers[worker] = pid, tid
        devices = list(self._devices().get(worker, ()))
        for name, args in (
            ("process_name", {"name": group}),
            ("thread_name", {"name": f"{worker} on {', '.join(devices) or 'this machine'}"}),
            ("rlinf_worker", {"worker": worker, "devices": devices}),
        ):
            yield {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}

    def _event(self, span: Span, args: dict[str, Any]) -> dict[str, Any]:
        pid, tid = self._workers[span.worker]
        return {
            "name": span.name,
            "cat": span.kind,
            "ph": "X",
            "ts": round((span.began + self._offset) / 1000, 1),  # microseconds, as the format wants
            "dur": round((span.ended - span.began) / 1000, 1),
            "pid": pid,
            "tid": tid,
            **({"args": args} if args else {}),
        }


@dataclass
class Call:
    """One call of a worker, read back. Times are seconds since the first call of the file."""

    worker: str
    name: str
    began: float
    ended: float
    details: dict[str, Any]
    within: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Kind, name, begin and end of what was no computing, in order; empty without details."""

    def spent(self, kind: str) -> float:
        """Return the seconds of one kind: "compute", "wait", "transfer" or "switch"."""
        if kind != "compute":
            return float(self.details.get(kind, 0.0))
        return self.ended - self.began - sum(self.spent(other) for other in INNER)

    def busy(self) -> list[tuple[float, float]]:
        """Return the stretches in which it did anything but wait."""
        stretches, at = [], self.began
        for kind, _, began, ended in self.within:
            if kind == "wait":
                stretches.append((at, began))
                at = ended
        stretches.append((at, self.ended))
        return [(a, b) for a, b in stretches if b > a]


@dataclass
class Timeline:
    """A whole file: its calls in the order of their begin, and where each worker ran."""

    calls: list[Call]
    devices: dict[str, list[str]]
    """Device to the workers on it."""


def read_timeline(path: Path) -> Timeline:
    """Read a run's timeline.

    Raises:
        RequestError: there is none, or it is not one of ours.
    """
    if not path.is_file():
        raise RequestError(f"there is no {path}; wanted the folder of a run that has been started")
    names: dict[tuple[int, int], str] = {}
    devices: dict[str, list[str]] = {}
    calls: list[Call] = []
    open_calls: dict[str, Call] = {}
    for event in _events(path):
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "rlinf_worker":
                names[place] = event["args"]["worker"]
                for device in event["args"]["devices"] or ["this machine"]:
                    workers = devices.setdefault(device, [])
                    workers += [names[place]] if names[place] not in workers else []
            continue
        worker, began = names[place], event["ts"] / 1e6
        ended = began + event["dur"] / 1e6
        if event["cat"] == "call":
            open_calls[worker] = Call(worker, event["name"], began, ended, event["args"])
            calls.append(open_calls[worker])
        else:
            open_calls[worker].within.append((event["cat"], event["name"], began, ended))
    calls.sort(key=lambda call: call.began)
    origin = calls[0].began if calls else 0.0
    for call in calls:
        call.began, call.ended = call.began - origin, call.ended - origin
        within = sorted(call.within, key=lambda inner: inner[2])
        call.within = [(kind, name, a - origin, b - origin) for kind, name, a, b in within]
    return Timeline(calls, devices)


def measure(timeline: Timeline) -> dict[str, Any]:
    """Return seconds per worker and idle time per device, over what was recorded in detail.

    A device is idle while none of its workers does anything but wait. Times are seconds.
    """
    calls = [call for call in timeline.calls if call.details.get("detailed", True)]
    if not calls:
        return {"seconds": 0.0, "workers": {}, "devices": {}}
    first, last = calls[0].began, max(call.ended for call in calls)
    span = last - first
    workers: dict[str, dict[str, float]] = {}
    for call in calls:
        spent = workers.setdefault(call.worker, dict.fromkeys(("compute", *INNER), 0.0))
        for kind in spent:
            spent[kind] += call.spent(kind)
    for spent in workers.values():
        spent["idle"] = max(span - sum(spent[kind] for kind in ("compute", *INNER)), 0.0)
    found = {}
    for device, there in timeline.devices.items():
        busy = union([s for call in calls if call.worker in there for s in call.busy()])
        found[device] = {"workers": there, "busy": busy, "idle": span - busy}
    return {"seconds": span, "workers": workers, "devices": found}


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip().rstrip(",")
            if text in ("", "[", "]"):
                continue
            try:
                event = json.loads(text)
                _ = event["ph"], event["pid"], event["tid"], event["name"]
            except (ValueError, TypeError, KeyError) as error:
                if not line.endswith("\n"):  # the run was killed while it wrote this
                    return
                raise RequestError(
                    f"{path}:{number}: found {text[:60]!r}, wanted an event of a run's timeline"
                ) from error
            yield event


def _calls(spans: Sequence[Span]) -> Iterator[tuple[Span, list[Span]]]:
    """Yield each call with the spans within it."""
    ordered = sorted(spans, key=lambda span: (span.worker, span.began, -span.ended))
    for _, mine in groupby(ordered, key=lambda span: span.worker):
        call, within = None, list[Span]()
        for span in mine:
            if span.kind == "call":
                if call is not None:
                    yield call, within
                call, within = span, []
            elif call is not None and span.ended <= call.ended:
                within.append(span)
        if call is not None:
            yield call, within


def _seconds(spans: Iterable[Span]) -> float:
    return sum(span.ended - span.began for span in spans) / 1e9


def union(stretches: Sequence[tuple[float, float]]) -> float:
    """Return how long any of these stretches lasts."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(stretches):
        total += max(ended - max(began, reached), 0.0)
        reached = max(reached, ended)
    return total
