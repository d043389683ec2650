"""What a run that was says of itself: its layout, what things cost, how long an iteration took.

Read from ``timeline.json`` and ``run.json``. :mod:`rlinf_core.runs.predict` predicts from it, and
``rlinf trace`` shows the prediction beside what was measured.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import median

from rlinf_core.errors import RequestError
from rlinf_core.flow.timeline import NAME, Call, Timeline, read_timeline, union
from rlinf_core.runs.predict import BETWEEN, METHODS, Layout, Times, Workers
from rlinf_core.scheduling.costs import Cost, costs


def layout_in(folder: Path, timeline: Timeline) -> Layout:
    """Return the layout of a run that was, from its files.

    Raises:
        RequestError: they do not say it.
    """
    path = folder / "run.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        collect, update = run["collect"], run["update"]
        runtime = run["cluster"]["runtime"]["name"]
        group_size = int(run["algorithm"].get("group_size", 1))
        calls = [call for call in timeline.calls if call.name == "collect"]
        stages = round(calls[0].details["items"] / collect["steps"])
        return Layout(
            simulation=_workers(timeline, "simulation"),
            rollout=_workers(timeline, "rollout"),
            training=_workers(timeline, "training"),
            stages=stages,
            envs=collect["envs"],
            steps=collect["steps"],
            epochs=update["epochs"],
            group_size=group_size,
            ahead=collect["max_staleness"],
            streaming=update["streaming"],
            alone=runtime.rpartition("/")[2] == "inline",
            turns=any(kind == "switch" for call in timeline.calls for kind, *_ in call.within),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise RequestError(
            f"{folder} does not say how its run was laid out ({type(error).__name__}: {error}); "
            f"wanted {path.name} and {NAME} of a run that was trained with this version"
        ) from error


def profile(folder: Path) -> dict[str, Cost]:
    """Return what the methods of a run cost in an earlier run.

    Raises:
        RequestError: that run has no timeline, or no iteration in it.
    """
    path = folder / NAME if folder.is_dir() else folder
    timeline = read_timeline(path)
    found = costs(timeline)
    missing = [name for name in METHODS if name not in found]
    if missing or not found["collect"].rows:
        what = f"no call of {', '.join(missing)}" if missing else "not how much work its calls were"
        raise RequestError(
            f"{path} says {what}; wanted the timeline of a run that was trained with this version"
        )
    return {**found, BETWEEN: _between(timeline)}


def measured(timeline: Timeline) -> Times | None:
    """Return how long an iteration took: medians, without the first; None before two iterations."""
    calls = {name: _rounds(timeline, name) for name in METHODS[:3]}
    ended = [max(call.ended for call in some) for some in calls["update"]]
    if len(ended) < 2:
        return None
    collects = [
        max(call.ended for call in acted) - min(call.began for call in simulated)
        for simulated, acted in zip(calls["collect"], calls["serve"], strict=False)
    ]
    updates = [
        max(call.spent("compute") + call.spent("transfer") for call in some)
        for some in calls["update"]
    ]
    detailed = [call for call in timeline.calls if call.details.get("detailed", True)]
    first, last = ended[0], min(ended[-1], max(call.ended for call in detailed))
    idle = {}
    for device, workers in timeline.devices.items() if last > first else ():
        busy = [
            (max(a, first), min(b, last))
            for call in detailed
            if call.worker in workers
            for a, b in call.busy()
            if b > first and a < last
        ]
        idle[device] = 1.0 - union(busy) / (last - first)
    return Times(
        collect=median(collects[1:] or collects),
        update=median(updates[1:]),
        iteration=median(b - a for a, b in pairwise(ended)),
        idle=idle,
    )


def _workers(timeline: Timeline, group: str) -> Workers:
    there: dict[int, list[str]] = {}
    for device, workers in timeline.devices.items():
        for worker in workers:
            name, _, rank = worker.rstrip("]").partition("[")
            if name == group:
                there.setdefault(int(rank), []).append(device)
    return tuple(tuple(there[rank]) for rank in sorted(there))


def _between(timeline: Timeline) -> Cost:
    """Return the time from the end of an iteration to the next; 0 where that is under way then."""
    began, ended = (
        [max(call.began for call in some) for some in _rounds(timeline, "collect")],
        [max(call.ended for call in some) for some in _rounds(timeline, "receive_weights")],
    )
    ended = ended[-len(began) :]  # the first weights are sent before anything is collected
    gaps = [b - a for a, b in zip(ended, began[1:], strict=False)]
    return Cost(max(median(gaps), 0.0) if gaps else 0.0)


def _rounds(timeline: Timeline, method: str) -> list[list[Call]]:
    """Return the calls of a method, those of all ranks together."""
    by_worker: dict[str, list[Call]] = {}
    for call in timeline.calls:
        if call.name == method:
            by_worker.setdefault(call.worker, []).append(call)
    return [list(some) for some in zip(*by_worker.values(), strict=False)]
