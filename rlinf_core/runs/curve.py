"""The learning curve of a run, drawn from its ``metrics.jsonl``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlinf_core.builtin.jsonl import read_lines


def draw_curve(path: Path, log: Path | None, title: str) -> Path | None:
    """Draw success and return over environment steps; return None where there is nothing to draw.

    Args:
        path: the PNG to write.
        log: a ``metrics.jsonl``.
        title: the run's name.
    """
    rows = [] if log is None else [data for _, data in read_lines(log)]
    rows = [row for row in rows if isinstance(row["metrics"].get("env_steps"), int | float)]
    if not rows:
        return None
    import matplotlib  # slow to import, and only the end of a run draws

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    steps = [row["metrics"]["env_steps"] for row in rows]
    figure, left = plt.subplots(figsize=(7, 4), dpi=120)
    right = left.twinx()
    _line(left, steps, rows, "episode/success_once", "success once (training)", "tab:blue")
    _line(left, steps, rows, "evaluation/success_once", "success once (held out)", "tab:green", "o")
    _line(right, steps, rows, "episode/return", "return", "tab:orange")
    left.set(xlabel="environment steps", ylabel="success", ylim=(-0.02, 1.02), title=title)
    right.set(ylabel="return of an episode")
    handles = [*left.get_lines(), *right.get_lines()]
    left.legend(handles, [str(h.get_label()) for h in handles], loc="lower right")
    left.grid(alpha=0.3)
    figure.tight_layout()
    beside = path.with_name(f".{path.name}.tmp.png")
    try:
        figure.savefig(beside)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    finally:
        plt.close(figure)
    return path


def _line(
    axes: Any,
    steps: list[float],
    rows: list[Any],
    name: str,
    label: str,
    colour: str,
    mark: str = "",
) -> None:
    points = [
        (step, row["metrics"][name])
        for step, row in zip(steps, rows, strict=True)
        if isinstance(row["metrics"].get(name), int | float)
    ]
    if points:
        axes.plot(*zip(*points, strict=True), color=colour, label=label, marker=mark or None)
