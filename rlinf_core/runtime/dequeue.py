"""The dequeue policies of the core: who gets the next item of a channel, and which."""

from __future__ import annotations

from collections.abc import Sequence


class Fifo:
    """Oldest item first, to whoever asked first."""

    def turn(self, waiting: Sequence[int], served: Sequence[float]) -> int:
        """Return 0: who asked first."""
        return 0

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return 0, the oldest."""
        return 0


class RoundRobin(Fifo):
    """Oldest item first; consumers that wait take turns in the order of their numbers."""

    def __init__(self) -> None:
        self._last = -1

    def turn(self, waiting: Sequence[int], served: Sequence[float]) -> int:
        """Return whoever follows the consumer that had the last turn."""
        count = len(served)
        position = min(
            range(len(waiting)), key=lambda index: (waiting[index] - self._last - 1) % count
        )
        self._last = waiting[position]
        return position


class Balanced:
    """Heaviest item first, to the consumer that has been given the least weight so far.

    This is the longest-processing-time rule: the largest load is at most 4/3 of the best possible
    (Graham, "Bounds on multiprocessing timing anomalies", 1969), where all items wait at once.
    """

    def turn(self, waiting: Sequence[int], served: Sequence[float]) -> int:
        """Return the consumer with the least weight."""
        return min(range(len(waiting)), key=lambda position: served[waiting[position]])

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return the heaviest item, the oldest of equals."""
        return max(range(len(weights)), key=lambda index: (weights[index], -index))
