"""Handing arrays from one process to another; each contestant runs in its own environment.

Every contestant prints, as JSON, the median seconds of :data:`SIZES`, so none of this but
``ours.py`` imports rlinf_core.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

SIZES = {"1 KiB": (1 << 10, 200), "1 MiB": (1 << 20, 100), "64 MiB": (1 << 26, 12)}
"""Name to bytes of an array, and how often one is handed over."""


def sizes(quick: bool) -> dict[str, tuple[int, int]]:
    """Return :data:`SIZES`, with as few exchanges as show that it runs."""
    return {name: (size, 3 if quick else count) for name, (size, count) in SIZES.items()}


def median(nanoseconds: Sequence[int]) -> float:
    """Return the median in seconds, without the first tenth, when memory is made."""
    return statistics.median(nanoseconds[max(1, len(nanoseconds) // 10) :]) / 1e9


def latency(put: Sequence[int], got: Sequence[int]) -> float:
    """Return the median from a call of ``put`` to the return of ``get``, in seconds.

    Both are of the machine's monotonic clock, which its processes share.
    """
    return median([end - began for began, end in zip(put, got, strict=True)])
