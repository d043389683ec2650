"""Weights from one process to another that holds a copy; each contestant in its own environment.

Every contestant prints, as JSON, the median seconds of an update by case, so none of this but
``ours.py`` and ``peer_torch.py`` imports torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

MIB = 256
"""Of parameters, in float32."""

COUNT = 9
"""Updates of each case; the first two, when memory is made, are not counted."""


def shapes(quick: bool) -> dict[str, tuple[int, ...]]:
    """Return the parameters: a table, and layers of four matrices and two vectors each."""
    scale = 32 if quick else 1
    found: dict[str, tuple[int, ...]] = {"table": (8192 // scale, 1024)}  # 32 MiB
    for layer in range(14):  # 16 MiB each
        for name in ("query", "value", "up", "down"):
            found[f"layer_{layer}_{name}"] = (1024 // scale, 1024)
        for name in ("before", "after"):
            found[f"layer_{layer}_{name}"] = (1024,)
    return found


def adapted(quick: bool) -> set[str]:
    """Return the names of about one percent of the parameters, as adapters would have."""
    return {name for name in shapes(quick) if name.endswith(("before", "after"))} | {
        "layer_0_query"
    }


def updates(quick: bool) -> int:
    """Return how often each case is measured."""
    return 3 if quick else COUNT


def median(began: Sequence[int], ended: Sequence[int]) -> float:
    """Return the median in seconds; times are nanoseconds of the machine's monotonic clock."""
    taken = [end - begin for begin, end in zip(began, ended, strict=True)]
    return statistics.median(taken[min(2, len(taken) - 1) :]) / 1e9
