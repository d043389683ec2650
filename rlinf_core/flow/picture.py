"""The picture of a timeline: a row per worker, under the device that it ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlinf_core.flow.timeline import Call, Timeline

COLOURS = {"compute": "tab:blue", "transfer": "tab:orange", "switch": "tab:red"}
"""What is drawn in which colour; waiting stays white."""


def draw_timeline(path: Path, timeline: Timeline, began: float, ended: float, title: str) -> None:
    """Draw the calls between two times, in seconds since the first, and write a PNG."""
    import matplotlib  # slow to import

    matplotlib.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    rows = [(d, w) for d in sorted(timeline.devices) for w in sorted(timeline.devices[d])]
    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.45 * len(rows)), dpi=120)
    shown = [call for call in timeline.calls if call.ended > began and call.began < ended]
    for row, (_, worker) in enumerate(rows):
        _row(axes, row, [call for call in shown if call.worker == worker])
    axes.set_yticks(range(len(rows)), [f"{device}  {worker}" for device, worker in rows])
    axes.set(xlim=(began, ended), ylim=(len(rows) - 0.5, -0.5), xlabel="seconds", title=title)
    handles = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    axes.legend(handles=handles, loc="upper right", fontsize="small", ncols=3)
    axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    beside = path.with_name(f".{path.name}.tmp.png")
    figure.savefig(beside)
    plt.close(figure)
    beside.replace(path)


def _row(axes: Any, row: int, calls: list[Call]) -> None:
    busy = [(a, b - a) for call in calls for a, b in call.busy()]
    axes.broken_barh(busy, (row - 0.4, 0.8), color=COLOURS["compute"], linewidth=0)
    for kind in ("transfer", "switch"):
        bars = [(a, b - a) for call in calls for k, _, a, b in call.within if k == kind]
        axes.broken_barh(bars, (row - 0.4, 0.8), color=COLOURS[kind], linewidth=0)
