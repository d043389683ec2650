"""Collective: sums over the ranks of a group, through a channel of any runtime.

Rank 0 adds up what the others send, in the order of ranks, so that the sum is the same every time.
A training backend that spreads one model over devices brings collectives of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_core.protocols.runtime import Channel

if TYPE_CHECKING:
    from torch import Tensor


class Collective:
    """One rank's end.

    Args:
        channel: joins the ranks; nobody else uses it.
        rank: of this worker.
        size: number of ranks.
    """

    def __init__(self, channel: Channel, rank: int, size: int) -> None:
        self._channel, self._rank, self._size = channel, rank, size

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of every rank's tensor; all ranks call it, in the same order."""
        if self._rank:
            self._channel.put(tensor, key=("part", self._rank))
            whole: Tensor = self._channel.get(key=("whole", self._rank))
            return whole.to(tensor.device, copy=True)
        total = tensor.clone()
        for rank in range(1, self._size):
            total += self._channel.get(key=("part", rank)).to(tensor.device)
        for rank in range(1, self._size):
            self._channel.put(total, key=("whole", rank))
        return total.clone()  # what was put may be read later, and the caller may change its own
