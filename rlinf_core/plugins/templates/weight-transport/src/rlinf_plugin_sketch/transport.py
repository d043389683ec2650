"""The weight transport ``sketch``: the first rank of the source sends everything to every target.

Sources must hold whole tensors. For parts of them, wrap or imitate what the core's own do.
"""

from typing import Any

from rlinf_core.api import (
    Channel,
    ChannelTimeout,
    Layout,
    Receipt,
    RolloutEngine,
    WeightStream,
    WeightSyncError,
    checksum,
)


class SketchTransport:
    """One process's end."""

    def __init__(self, config: Any = None) -> None:
        self._channel: Channel | None = None

    def open(self, channel: Channel, replies: Channel, source: Layout, target: Layout) -> None:
        """Get ready, waiting for nobody."""
        self._channel, self._source, self._target = channel, source, target
        self._version = -1

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Send a copy to every target, so that training may go on."""
        channel = self._opened()
        self._check(version)
        if self._source.own_rank:
            return Receipt(0, "", version)
        tensors = {name: tensor.detach().clone() for name, tensor in stream}
        mark = checksum(tensors)
        for rank in range(self._target.ranks):
            channel.put((stream.header, tensors, mark), key=rank, version=version)
        return Receipt(len(tensors), mark, version, stream.header.bytes * self._target.ranks)

    def receive(self, engine: RolloutEngine) -> Receipt:
        """Load what comes, if it is what was sent."""
        try:
            header, tensors, mark = self._opened().get(key=self._target.own_rank, timeout=600.0)
        except ChannelTimeout as error:
            raise WeightSyncError(f"{self._source.named(0)} is missing: {error}") from error
        self._check(header.version)
        if checksum(tensors) != mark:
            raise WeightSyncError(f"weights of version {header.version} came with another checksum")
        engine.load(WeightStream(header, tensors.items()), header.version)
        return Receipt(len(tensors), mark, header.version, header.bytes)

    def _opened(self) -> Channel:
        if self._channel is None:
            raise WeightSyncError("the weight transport 'sketch' was used before open()")
        return self._channel

    def _check(self, version: int) -> None:
        if version <= self._version:
            raise WeightSyncError(f"weights of version {version} after version {self._version}")
        self._version = version
