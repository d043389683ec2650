"""The ``memory`` weight transport: a snapshot of all weights through a channel, checked whole."""

from __future__ import annotations

from typing import Any

from rlinf_core.errors import WeightSyncError
from rlinf_core.protocols.rollout_engine import RolloutEngine
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.weight_transport import Layout, Receipt
from rlinf_core.transport.weights import WeightStream


class MemoryTransport:
    """Both ends of the way; a run makes one at each end.

    Args:
        config: it has no options.
    """

    def __init__(self, config: Any = None) -> None:
        self._channel: Channel | None = None
        self._targets = 0

    def open(self, channel: Channel, source: Layout, target: Layout) -> None:
        """Take the channel; every target rank gets all weights from source rank 0."""
        self._channel, self._targets = channel, target.ranks

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Copy the weights once, so that training may go on, and send them to every target."""
        channel = self._open()
        snapshot = [(name, tensor.detach().clone()) for name, tensor in stream]
        for _ in range(self._targets):
            channel.put(WeightStream(stream.header, snapshot), version=version)
        return Receipt(len(snapshot), "", version)

    def receive(self, engine: RolloutEngine) -> Receipt:
        """Load the next version into ``engine``, which checks names, shapes and completeness."""
        stream: WeightStream = self._open().get()
        engine.load(stream, stream.header.version)
        return Receipt(len(stream.header.shapes), "", stream.header.version)

    def _open(self) -> Channel:
        if self._channel is None:
            raise WeightSyncError("the weight transport 'memory' was used before open()")
        return self._channel
