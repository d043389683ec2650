"""DequeuePolicy: which waiting item a consumer of a channel gets next.

The target of a dequeue-policy component is called as ``target()``, once per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class DequeuePolicy(Protocol):
    """Chooses among the items that wait in a channel, and among the consumers that wait for one.

    Consumers have numbers, from 0 in the order in which they first asked.
    """

    def turn(self, waiting: Sequence[int], served: Sequence[float]) -> int:
        """Return the position in ``waiting`` of the consumer to serve first.

        Args:
            waiting: the consumers that wait, who asked first stands first; at least two.
            served: total weight that each consumer has been given so far.
        """
        ...

    def choose(self, weights: Sequence[float], consumer: int, served: Sequence[float]) -> int:
        """Return the index of the item to hand out.

        Args:
            weights: weight of each waiting item, oldest first; never empty.
            consumer: who asks.
            served: total weight that each consumer has been given so far.
        """
        ...
