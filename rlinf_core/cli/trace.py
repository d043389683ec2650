"""``rlinf trace``: where the time of a run went, per worker and per device, and a picture of it."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any

from rlinf_core.errors import RequestError
from rlinf_core.files import finite
from rlinf_core.flow.sizes import in_seconds
from rlinf_core.flow.timeline import NAME, Timeline, measure, read_timeline
from rlinf_core.runs.measured import layout_in, measured
from rlinf_core.runs.measured import profile as profile_of
from rlinf_core.runs.predict import predict

SCHEMA_VERSION = 1
_ITERATIONS = 3  # in the picture, where nothing else was asked for


def main(
    folder: Path,
    picture: Path | None,
    began: float | None,
    seconds: float | None,
    json: bool,
    profile: Path | None = None,
) -> int:
    """Measure and draw a run's timeline; return the exit code 0."""
    from rlinf_core.flow.picture import draw_timeline

    path = folder / NAME if folder.is_dir() else folder
    timeline = read_timeline(path)
    found = measure(timeline)
    if not found["seconds"]:
        raise RequestError(f"{path} holds no calls; wanted a run that did one iteration")
    window = _window(timeline, began, seconds)
    iteration = _iteration(path, timeline, profile)
    picture = picture or path.with_name("timeline.png")
    draw_timeline(picture, timeline, *window, title=path.parent.resolve().name)
    if json:
        report = {
            "schema_version": SCHEMA_VERSION,
            **found,
            "iteration": iteration,
            "timeline": str(path),
            "picture": str(picture),
        }
        json_module.dump(finite(report), sys.stdout, indent=2)
        print()
    else:
        _show(found, iteration, path, picture)
    return 0


def _iteration(path: Path, timeline: Timeline, earlier: Path | None) -> dict[str, Any] | None:
    """Return what an iteration took and what is predicted; None where the run does not say."""
    folder = path.parent
    times = measured(timeline)
    if times is None:
        return None
    try:
        known = profile_of(earlier or path)
        predicted = predict(layout_in(folder, timeline), known, str(earlier or folder)).as_json()
    except RequestError:
        if earlier is not None:
            raise
        return {"measured": times.as_json(), "predicted": None}
    return {"measured": times.as_json(), "predicted": predicted}


def _window(timeline: Timeline, began: float | None, seconds: float | None) -> tuple[float, float]:
    """Return what to draw: what was asked for, else a few iterations after the first."""
    detailed = [call for call in timeline.calls if call.details.get("detailed", True)]
    last = max(call.ended for call in detailed)
    updates = [call.ended for call in detailed if call.name == "update"]
    first = updates[0] if len(updates) > 1 else 0.0
    end = updates[min(_ITERATIONS, len(updates) - 1)] if len(updates) > 1 else last
    start = first if began is None else began
    if seconds is None:
        seconds = (end if began is None else last) - start
    if seconds <= 0 or start >= last:
        raise RequestError(
            f"nothing was recorded from {start:g} s on for {seconds:g} s; the timeline has details "
            f"up to {last:.1f} s"
        )
    return start, start + seconds


def _show(
    found: dict[str, Any], iteration: dict[str, Any] | None, path: Path, picture: Path
) -> None:
    whole = found["seconds"]
    print(f"{whole:.1f} s recorded in {path}")
    kinds = ("compute", "wait", "transfer", "switch", "idle")
    width = max(len(name) for name in [*found["workers"], *found["devices"], "WORKER"])
    print(f"\n{'WORKER':<{width}}" + "".join(f"  {kind.upper():>8}" for kind in kinds))
    for worker, spent in found["workers"].items():
        shares = "".join(f"  {spent[kind] / whole:>8.1%}" for kind in kinds)
        print(f"{worker:<{width}}{shares}")
    print(f"\n{'DEVICE':<{width}}  {'BUSY':>8}  {'IDLE':>8}  WORKERS")
    for device, spent in found["devices"].items():
        busy, idle = spent["busy"] / whole, spent["idle"] / whole
        print(f"{device:<{width}}  {busy:>8.1%}  {idle:>8.1%}  {', '.join(spent['workers'])}")
    if iteration is not None:
        _show_iteration(iteration, width)
    print(f"\npicture: {picture}\nopen {path} in Perfetto to look closer")


def _show_iteration(found: dict[str, Any], width: int) -> None:
    measured, predicted = found["measured"], found["predicted"] or {}

    def row(name: str, *values: str) -> None:
        print(f"{name:<{width}}" + "".join(f"  {value:>9}" for value in values))

    print()
    row("ITERATION", "MEASURED", "PREDICTED")
    for key, name in (("collect_s", "collect"), ("update_s", "learn"), ("iteration_s", "all")):
        expected = in_seconds(predicted[key]) if predicted else "unknown"
        row(name, in_seconds(measured[key]), expected)
    for device, share in measured["idle"].items():
        other = predicted["idle"].get(device) if predicted else None
        expected = "unknown" if other is None else f"{other:.1%}"
        row(f"{device} idle", f"{share:.1%}", expected)
    for note in predicted.get("notes", ()):
        print(note)
