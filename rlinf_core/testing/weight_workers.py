"""The two ends of the contract of weight transports, importable by name wherever a runtime is.

Weights are made up: :func:`weights` gives those of a version, the same in every process.
"""

from __future__ import annotations

import importlib
import resource
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlinf_core.builtin.config import DirectConfig
from rlinf_core.builtin.direct import DirectEngine
from rlinf_core.data.batch import Batch
from rlinf_core.errors import WeightSyncError
from rlinf_core.protocols.policy import Act, Mode
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.weight_transport import Layout, Receipt, WeightTransport
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.transport.routes import Part
from rlinf_core.transport.weights import Header, WeightStream

_SHAPES: Mapping[str, tuple[tuple[int, ...], torch.dtype]] = {
    "table": ((200_000, 9), torch.float32),  # 7.2 MB: more than a bucket, and rows of no round size
    "scale": ((7,), torch.float32),
    "number": ((), torch.float32),
    "nothing": ((0, 3), torch.float32),
    "halves": ((5, 3), torch.bfloat16),
    "count": ((3,), torch.int64),
    "frozen": ((64, 64), torch.float32),
}
SLICED = "table"
"""The tensor of which a sliced target holds only some rows."""


def weights(version: int) -> dict[str, Tensor]:
    """Return the weights of a version; "frozen" is the same in all."""
    found = {}
    for index, (name, (shape, dtype)) in enumerate(_SHAPES.items()):
        generator = torch.Generator().manual_seed(100 * index + (name != "frozen") * version)
        found[name] = (1000 * torch.randn(shape, generator=generator)).to(dtype)
    return found


def share(length: int, size: int, rank: int) -> tuple[int, int]:
    """Return where a rank's share of so many rows begins, and how many they are."""
    first, last = length * rank // size, length * (rank + 1) // size
    return first, last - first


class WeightHolder(nn.Module):
    """Holds such weights; its action is a sum that depends on them."""

    def __init__(self, rows: int | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        for name, (shape, own) in _SHAPES.items():
            held = dtype if dtype is not None and own.is_floating_point else own
            lengths = shape if rows is None or name != SLICED else (rows, *shape[1:])
            self.register_buffer(name, torch.zeros(lengths, dtype=held))

    def act(self, obs: Batch, draws: Any, mode: Mode) -> Act:
        """Return one number, whatever is seen."""
        return Act(self.scale.sum().reshape(1, 1, 1), None, None, None)  # type: ignore[operator]


class WholeEngine(DirectEngine):
    """An engine that takes nothing but complete streams, as most that generate text do."""

    loads_parts = False

    def load(self, stream: WeightStream, version: int) -> None:
        """Take whole tensors, all of them."""
        if stream.header.base is not None:
            raise AssertionError("a stream that leaves something out came to an engine that asks "
                                 "for all")  # fmt: skip
        tensors = dict(stream)
        super().load(WeightStream(stream.header, tensors.items()), version)


class SlicedEngine(DirectEngine):
    """One rank of an engine that spreads the rows of a tensor over its ranks."""

    part = Part((0, 0), (0, 0))

    def wants(self, header: Header) -> Mapping[str, Part]:
        """Return the rows that this rank holds."""
        return {SLICED: self.part}


ENGINES = {"direct": DirectEngine, "whole": WholeEngine, "sliced": SlicedEngine}


def _transport(target: str, config: Any) -> WeightTransport:
    module, _, name = target.partition(":")
    made: WeightTransport = getattr(importlib.import_module(module), name)(config)
    return made


class _End(Worker):
    def peak_memory(self) -> int:
        """Return the most memory that this process ever had, in bytes, shared memory included."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class WeightSource(_End):
    """A source.

    Args:
        place: where it finds itself.
        target: ``"module:Class"`` of the transport.
        config: its options.
        sharded: whether each rank has only some rows of what has enough of them.
    """

    def __init__(self, place: Place, target: str, config: Any, sharded: bool = False) -> None:
        super().__init__(place)
        self._transport, self._sharded = _transport(target, config), sharded
        self._held = weights(0)

    def open_weights(
        self, channel: Channel, replies: Channel, source: Layout, target: Layout
    ) -> None:
        """Get ready."""
        self._transport.open(channel, replies, replace(source, rank=self.place.rank), target)

    def send(
        self, version: int, leave_out: str = "", add: str = "", content: int | None = None
    ) -> Receipt:
        """Send the weights of a version, in an order of this rank's own; then change them."""
        for name, tensor in weights(version if content is None else content).items():
            self._held[name].copy_(tensor)  # in place, as an optimizer does
        turn = self.place.rank % len(self._held)
        names = [*list(self._held)[turn:], *list(self._held)[:turn]]
        tensors = {name: self._held[name] for name in names if name != leave_out}
        if add:
            tensors[add] = torch.zeros(2)
        places: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for name, tensor in tensors.items():
            if self._sharded and tensor.ndim and len(tensor) >= self.place.size:
                start, rows = share(len(tensor), self.place.size, self.place.rank)
                places[name] = tuple(tensor.shape), (start, *[0] * (tensor.ndim - 1))
                tensors[name] = tensor[start : start + rows]
        receipt = self._transport.send(WeightStream.from_shards(tensors, version, places), version)
        for name in self._held.keys() - {"frozen"}:
            self._held[name].zero_()  # training goes on; what was sent stays as it was
        return receipt


class WeightTarget(_End):
    """A target.

    Args:
        place: where it finds itself.
        target: ``"module:Class"`` of the transport.
        config: its options.
        engine: of :data:`ENGINES`.
        dtype: name of the dtype that it holds floating-point numbers in, where not as sent.
    """

    def __init__(
        self, place: Place, target: str, config: Any, engine: str = "direct", dtype: str = ""
    ) -> None:
        super().__init__(place)
        self._transport = _transport(target, config)
        self._engine = ENGINES[engine](DirectConfig(), "cpu")
        start, rows = share(_SHAPES[SLICED][0][0], place.size, place.rank)
        if isinstance(self._engine, SlicedEngine):
            self._engine.part = Part((start, 0), (rows, _SHAPES[SLICED][0][1]))
        held = rows if engine == "sliced" else None
        self._engine.build(lambda: WeightHolder(held, getattr(torch, dtype) if dtype else None))

    def open_weights(
        self, channel: Channel, replies: Channel, source: Layout, target: Layout
    ) -> None:
        """Get ready."""
        self._transport.open(channel, replies, source, replace(target, rank=self.place.rank))

    def receive(self) -> Receipt:
        """Receive once."""
        return self._transport.receive(self._engine)

    def attempt(self) -> str:
        """Receive once; return what the error said, if there was one."""
        try:
            self._transport.receive(self._engine)
        except WeightSyncError as error:
            return str(error)
        return ""

    def held(self) -> tuple[int, dict[str, Tensor]]:
        """Return the version of the engine and copies of its weights."""
        state = self._engine._policy.state_dict()
        return self._engine.version, {name: tensor.clone() for name, tensor in state.items()}

    def forget(self) -> None:
        """Hold no valid weights, as after an engine's deep sleep."""
        self._engine.version = -1

    def acts(self) -> bool:
        """Return whether the engine acts."""
        try:
            self._engine.act(Batch({"state": torch.zeros(1, 1)}), None, Mode.GREEDY)
        except WeightSyncError:
            return False
        return True
