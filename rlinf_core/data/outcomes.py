"""What is reported of episodes that ended: plain numbers, no tensors, so flows can import it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Episode:
    """One finished episode.

    Attributes:
        env: id of its environment.
        state: what it started from, as ``split/index``.
        length: executed steps.
        total: undiscounted sum of rewards.
        success_once: solved at any step.
        success_at_end: solved at the last executed step.
    """

    env: int
    state: str
    length: int
    total: float
    success_once: bool
    success_at_end: bool


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return means over episodes; NaN where there are none."""
    count = len(episodes)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / count if count else math.nan

    return {
        "episode/success_once": mean([e.success_once for e in episodes]),
        "episode/success_at_end": mean([e.success_at_end for e in episodes]),
        "episode/return": mean([e.total for e in episodes]),
        "episode/length": mean([e.length for e in episodes]),
        "episode/count": float(count),
    }


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the interval of a proportion that covers it with 95% (Wilson 1927, JASA 22, p. 209).

    Args:
        z: quantile of the standard normal, 1.96 for 95%.
    """
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
