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


def summary(episodes: Sequence[Episode], success: bool = True) -> dict[str, float]:
    """Return means over episodes; NaN where there are none.

    Args:
        success: whether the simulator reports success; if not, nothing is said of it.
    """
    count = len(episodes)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / count if count else math.nan

    solved = {
        "episode/success_once": mean([e.success_once for e in episodes]),
        "episode/success_at_end": mean([e.success_at_end for e in episodes]),
    }
    return {
        **(solved if success else {}),
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
    low = centre - half if successes else 0.0  # exactly, not up to rounding
    return low, centre + half if successes < trials else 1.0
