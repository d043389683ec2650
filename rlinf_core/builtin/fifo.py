"""The ``fifo`` dequeue policy: oldest first, whoever asks."""

from __future__ import annotations

from collections.abc import Sequence


class Fifo:
    """Hands out items in the order in which they came."""

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return 0, the oldest."""
        return 0
