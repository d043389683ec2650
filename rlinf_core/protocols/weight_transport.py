"""WeightTransport: moves weights from a training backend to rollout engines.

The target of a weight-transport component is called as ``target(config)``, once in each process of
both ends; they speak through the channels that :meth:`WeightTransport.open` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rlinf_core.errors import WeightSyncError

if TYPE_CHECKING:
    from rlinf_core.protocols.rollout_engine import RolloutEngine
    from rlinf_core.protocols.runtime import Channel
    from rlinf_core.transport.weights import WeightStream


@dataclass(frozen=True)
class Layout:
    """One end of the way.

    Attributes:
        ranks: over how many processes weights are spread, or in how many they are.
        group: name of the group, for messages.
        rank: number of this process, where this is its end; None where it is the other one.
        device: what torch calls the device that this process's tensors live on.
    """

    ranks: int = 1
    group: str = "rank"
    rank: int | None = None
    device: str = "cpu"

    def named(self, rank: int) -> str:
        """Return what a rank of this end is called."""
        return f"{self.group}[{rank}]"

    @property
    def own_rank(self) -> int:
        """Number of this process.

        Raises:
            WeightSyncError: this is the other end.
        """
        if self.rank is None:
            raise WeightSyncError(f"this process is no rank of {self.group!r}; wanted one that is")
        return self.rank


@dataclass(frozen=True)
class Receipt:
    """What one process sent or received in one update.

    Attributes:
        keys: number of tensors, those included of which it was a part.
        checksum: of all of that, as hexadecimal digits; empty if not computed.
        version: version of the weights.
        bytes: sent, to all targets together, or received.
    """

    keys: int
    checksum: str
    version: int
    bytes: int = 0


class WeightTransport(Protocol):
    """One process's end of the way that weights take."""

    def open(self, channel: Channel, replies: Channel, source: Layout, target: Layout) -> None:
        """Get ready, waiting for nobody; what was opened before is over.

        Args:
            channel: from the source to the targets; large tensors may take another way.
            replies: from the targets to the source.
            source: the backend's end. Has a rank where this process sends.
            target: the engines' end. Has a rank where this process receives.
        """
        ...

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Send this rank's share of all weights; what is sent may change after it has returned.

        Args:
            stream: all weights, or this rank's parts of them.
            version: of the weights; goes up from call to call since :meth:`open`.

        Raises:
            WeightSyncError: the version does not go up, or a rank is missing, which is named.
        """
        ...

    def receive(self, engine: RolloutEngine) -> Receipt:
        """Wait for the next version and load it into ``engine``.

        Raises:
            WeightSyncError: names, shapes, dtypes, count of bytes or checksum differ from what was
                announced, or a rank is missing, which is named. The engine either is as before or
                refuses to act until it has been loaded.
        """
        ...
