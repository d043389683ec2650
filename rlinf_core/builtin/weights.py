"""The weight transports of the core: ``full``, ``bucketed`` and ``changed``.

All send from any number of ranks to any number, and check what arrives; they differ in how much is
under way at a time, and in what is left out. What they share stands in ``rlinf_core.transport``.
"""

from __future__ import annotations

from torch import Tensor

from rlinf_core.builtin.config import BucketedConfig, ChangedConfig, WeightsConfig
from rlinf_core.errors import WeightSyncError
from rlinf_core.protocols.rollout_engine import RolloutEngine
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.weight_transport import Layout, Receipt
from rlinf_core.transport.checksum import same_bytes
from rlinf_core.transport.messages import Terms, Wish
from rlinf_core.transport.receiving import Receiver
from rlinf_core.transport.sending import Selection, Sender
from rlinf_core.transport.weights import Header, WeightStream

_WINDOW = 3  # buckets under way: one is written, one waits, one is read


class FullTransport:
    """Everything, in one go: all is there and checked before anything is loaded.

    It waits for no target, so that training goes on while targets still act; memory holds one copy
    of the weights for each target meanwhile.

    Args:
        config: its options.
    """

    def __init__(self, config: WeightsConfig) -> None:
        self._terms = Terms(config.dtype, config.way, config.timeout)
        self._end: Sender | Receiver | None = None

    def open(self, channel: Channel, replies: Channel, source: Layout, target: Layout) -> None:
        """Become a rank of either end."""
        if self._end is not None:
            self._end.close()
        make = Receiver if source.rank is None else Sender
        self._end = make(channel, replies, source, target, self._terms)

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Send this rank's share of the weights to every target."""
        if not isinstance(self._end, Sender):
            raise WeightSyncError("a weight transport sent before open() made it a source")
        return self._end.send(stream, version, self._select)

    def receive(self, engine: RolloutEngine) -> Receipt:
        """Load the next version into ``engine``, which checks names, shapes and completeness."""
        if not isinstance(self._end, Receiver):
            raise WeightSyncError("a weight transport received before open() made it a target")
        return self._end.receive(engine, self._holds(engine), self._load)

    def _select(self, wish: Wish, holds: int) -> Selection:
        """Return what to send of a wish."""
        return wish.regions, None

    def _holds(self, engine: RolloutEngine) -> int:
        """Return the version that an engine can be brought on from."""
        return -1

    def _load(self, engine: RolloutEngine, stream: WeightStream) -> None:
        """Load what has come."""
        engine.load(stream, stream.header.version)


class BucketedTransport(FullTransport):
    """In buckets: one is loaded while the next is sent, and memory holds no more than a few.

    It waits for its targets.

    Args:
        config: its options.
    """

    def __init__(self, config: BucketedConfig) -> None:
        super().__init__(config)
        bucket = config.bucket_mib << 20
        self._terms = Terms(config.dtype, config.way, config.timeout, bucket, _WINDOW)


class ChangedTransport(BucketedTransport):
    """In buckets, and only the tensors whose bytes changed since what a target holds.

    A source keeps a copy of what it sent last, to compare with. A target that holds another
    version, or none, gets everything.

    Args:
        config: its options.
    """

    def __init__(self, config: ChangedConfig) -> None:
        super().__init__(config)
        self._sent: dict[str, Tensor] = {}  # what this source sent last
        self._version = -1  # of that
        self._now: dict[str, Tensor] = {}
        self._differs: dict[str, bool] = {}  # name to whether it has changed since
        self._kept: dict[str, Tensor] = {}  # by a target whose engine wants everything

    def open(self, channel: Channel, replies: Channel, source: Layout, target: Layout) -> None:
        """Become a rank of either end; nobody is known to hold anything."""
        super().open(channel, replies, source, target)
        self._sent, self._version, self._kept = {}, -1, {}

    def send(self, stream: WeightStream, version: int) -> Receipt:
        """Send what changed."""
        self._now, self._differs = dict(stream), {}
        receipt = super().send(WeightStream(stream.header, self._now.items()), version)
        assert isinstance(self._end, Sender)
        for name in self._end.names:
            if name not in self._sent:
                self._sent[name] = self._now[name].detach().clone()
            elif self._differs.get(name, True):
                self._sent[name].copy_(self._now[name].detach())
        self._now, self._version = {}, version
        return receipt

    def _select(self, wish: Wish, holds: int) -> Selection:
        if holds < 0 or holds != self._version:
            return wish.regions, None
        return tuple(r for r in wish.regions if self._changed(r.name)), self._version

    def _changed(self, name: str) -> bool:
        if name not in self._differs:
            sent = self._sent.get(name)
            self._differs[name] = sent is None or not same_bytes(self._now[name], sent)
        return self._differs[name]

    def _holds(self, engine: RolloutEngine) -> int:
        return engine.version if _loads_parts(engine) or self._kept else -1

    def _load(self, engine: RolloutEngine, stream: WeightStream) -> None:
        if _loads_parts(engine):
            engine.load(stream, stream.header.version)
            return
        header = stream.header
        if header.base is None:
            self._kept = {name: tensor.clone() for name, tensor in stream}
        else:
            for name, tensor in stream:
                self._kept[name].copy_(tensor)
        whole = Header(
            header.version, header.shapes,
            sum(tensor.numel() * tensor.element_size() for tensor in self._kept.values()),
            header.dtypes, header.parts, dtype=header.dtype,
        )  # fmt: skip
        engine.load(WeightStream(whole, self._kept.items()), header.version)


def _loads_parts(engine: RolloutEngine) -> bool:
    return bool(getattr(engine, "loads_parts", False))
