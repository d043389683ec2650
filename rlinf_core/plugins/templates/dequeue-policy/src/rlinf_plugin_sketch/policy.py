"""The dequeue policy ``sketch``."""

from collections.abc import Sequence


class SketchPolicy:
    """Hands out the heaviest item, to whoever asked first."""

    def turn(self, waiting: Sequence[int], served: Sequence[float]) -> int:
        """Return the position in ``waiting`` of the consumer to serve; who asked first is first."""
        return 0

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return the index of the item to hand out; ``weights`` are oldest first, never empty."""
        return max(range(len(weights)), key=lambda index: weights[index])
