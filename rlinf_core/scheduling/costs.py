"""What the parts of a run cost, read from the timeline of a run that was.

Workers note with a call how much work it was: ``items``, how often the same thing was done, and
``rows``, how many rows each of them had. Within a call the items' mean is taken, and of the calls
the median, so that a hiccup costs nothing; each worker's first call, in which libraries warm up,
is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import mean, median
from typing import NamedTuple

from rlinf_core.flow.timeline import Call, Timeline


class Cost(NamedTuple):
    """What one item of a method costs.

    Attributes:
        seconds: of computing, packing and unpacking.
        rows: rows of an item; 0 where they are not counted.
        switch: seconds of leaving a device and coming back to it; 0 where that never happened.
    """

    seconds: float
    rows: float = 0.0
    switch: float = 0.0

    def of(self, rows: float) -> float:
        """Return the seconds of an item of so many rows, in proportion to those measured."""
        return self.seconds * rows / self.rows if self.rows and rows else self.seconds


def costs(timeline: Timeline) -> dict[str, Cost]:
    """Return the cost of each method that was called, by its name."""
    by_name: dict[str, list[Call]] = {}
    for call in timeline.calls:
        by_name.setdefault(call.name, []).append(call)
    return {name: _cost(warm(calls)) for name, calls in by_name.items()}


def warm(calls: Iterable[Call]) -> list[Call]:
    """Return calls without each worker's first; all where a worker has no other."""
    everything = list(calls)
    seen: Counter[str] = Counter()
    later = []
    for call in everything:
        if seen[call.worker]:
            later.append(call)
        seen[call.worker] += 1
    return later if len({call.worker for call in later}) == len(seen) else everything


def _cost(calls: list[Call]) -> Cost:
    items = [float(call.details.get("items", 1)) or 1.0 for call in calls]
    rows = [float(call.details.get("rows", 0)) for call in calls]
    spent = [call.spent("compute") + call.spent("transfer") for call in calls]
    entries = sum(
        kind == "switch" and name == "onload" for call in calls for kind, name, _, _ in call.within
    )
    switched = sum(call.spent("switch") for call in calls if call.within)
    return Cost(
        seconds=median(seconds / number for seconds, number in zip(spent, items, strict=True)),
        rows=mean(rows),
        switch=switched / entries if entries else 0.0,
    )
