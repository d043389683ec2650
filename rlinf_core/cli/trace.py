"""``rlinf trace``: where the time of a run went, per worker and per device, and a picture of it."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any

from rlinf_core.errors import RequestError
from rlinf_core.files import finite
from rlinf_core.flow.timeline import NAME, Timeline, measure, read_timeline

SCHEMA_VERSION = 1
_ITERATIONS = 3  # in the picture, where nothing else was asked for


def main(
    folder: Path, picture: Path | None, began: float | None, seconds: float | None, json: bool
) -> int:
    """Measure and draw a run's timeline; return the exit code 0."""
    from rlinf_core.flow.picture import draw_timeline

    path = folder / NAME if folder.is_dir() else folder
    timeline = read_timeline(path)
    found = measure(timeline)
    if not found["seconds"]:
        raise RequestError(f"{path} holds no calls; wanted a run that did one iteration")
    window = _window(timeline, began, seconds)
    picture = picture or path.with_name("timeline.png")
    draw_timeline(picture, timeline, *window, title=path.parent.resolve().name)
    if json:
        report = {
            "schema_version": SCHEMA_VERSION,
            **found,
            "timeline": str(path),
            "picture": str(picture),
        }
        json_module.dump(finite(report), sys.stdout, indent=2)
        print()
    else:
        _show(found, path, picture)
    return 0


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


def _show(found: dict[str, Any], path: Path, picture: Path) -> None:
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
    print(f"\npicture: {picture}\nopen {path} in Perfetto to look closer")
