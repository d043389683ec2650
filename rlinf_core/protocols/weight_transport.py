"""WeightTransport: moves weights from a training backend to rollout engines.

The target of a weight-transport component is called as ``target(config)``, once at each end; the
two ends speak through the channel that :meth:`open` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rlinf_core.protocols.rollout_engine import RolloutEngine
    from rlinf_core.protocols.runtime import Channel
    from rlinf_core.transport.weights import WeightStream


@dataclass(frozen=True)
class Layout:
    """Over how many ranks weights are spread at one end."""

    ranks: int = 1


@dataclass(frozen=True)
class Receipt:
    """What one end sent or received.

    Attributes:
        keys: number of tensors.
        checksum: SHA-256 over names, dtypes and bytes in sorted order; empty if not computed.
        version: version of the weights.
    """

    keys: int
    checksum: str
    version: int


class WeightTransport(Protocol):
    """One end of the way that weights take."""

    def open(self, channel: Channel, source: Layout, target: Layout) -> None:
        """Agree on who sends which slice to whom.

        Args:
            channel: joins the two ends; large tensors may take another way.
            source: ranks of the backend.
            target: ranks of the engine.
        """
        ...

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Send all weights under a version; returns what was sent."""
        ...

    def receive(self, engine: RolloutEngine) -> Receipt:
        """Wait for the next version and load it into ``engine``.

        Raises:
            WeightSyncError: names, shapes, count of bytes or checksum differ from the header.
        """
        ...
