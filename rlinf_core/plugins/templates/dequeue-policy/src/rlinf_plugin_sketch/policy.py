"""The dequeue policy ``sketch``."""

from collections.abc import Sequence


class SketchPolicy:
    """Hands out the heaviest item, whoever asks."""

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return the index of the item to hand out; ``weights`` are oldest first, never empty."""
        return max(range(len(weights)), key=lambda index: weights[index])
