"""Sender: the source's end of a weight transport. What is said stands in ``messages.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlinf_core.errors import WeightSyncError
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.weight_transport import Layout, Receipt
from rlinf_core.transport.checksum import combine, fingerprint
from rlinf_core.transport.messages import (
    Bucket,
    Grant,
    Offer,
    Terms,
    Update,
    Wish,
    grant_key,
    offer_key,
    update_key,
    wish_key,
)
from rlinf_core.transport.rollcall import Patience, roll_call
from rlinf_core.transport.routes import Region, buckets
from rlinf_core.transport.ways import choose_way
from rlinf_core.transport.weights import Header, WeightStream, dtype_name, dtype_of
from rlinf_core.transport.wires import Wire, here, make_wire

Selection = tuple[tuple[Region, ...], int | None]
"""What is sent of a wish, and the version on top of which it goes."""

Select = Callable[[Wish, int], Selection]


class Sender:
    """One rank of the source.

    Args:
        channel: to the targets.
        replies: from them.
        source: this end; its rank is this process's.
        target: the other end.
        terms: how to send.
    """

    def __init__(
        self, channel: Channel, replies: Channel, source: Layout, target: Layout, terms: Terms
    ) -> None:
        self._channel, self._replies, self._terms = channel, replies, terms
        self._rank, self._source, self._target = source.own_rank, source, target
        self._offered: Header | None = None
        self._wishes: list[Wish] = []
        self._wires: list[Wire] = []
        self._version: int | None = None

    def send(
        self,
        stream: WeightStream,
        version: int,
        select: Select,
    ) -> Receipt:
        """Send what each target wants.

        Args:
            stream: all that this rank has.
            version: of the weights.
            select: given a wish and the version that its target holds, returns what to send.

        Raises:
            WeightSyncError: the version does not go up, the tensors are others than those of the
                first time, or a target is missing.
        """
        if self._version is not None and version <= self._version:
            raise WeightSyncError(
                f"weights of version {version} after those of version {self._version}; wanted "
                "versions that go up"
            )
        tensors = self._collect(stream, version)
        header = self._announced(stream.header)
        if self._offered is None:
            self._meet(header)
        elif (header.shapes, header.dtypes, header.parts) != (
            self._offered.shapes,
            self._offered.dtypes,
            self._offered.parts,
        ):
            raise WeightSyncError(
                f"the weights of version {version} have other names, shapes or dtypes than those "
                "before; open the transport anew"
            )
        self._offered = header
        receipt = self._update(tensors, version, select)
        self._version = version
        return receipt

    @property
    def names(self) -> frozenset[str]:
        """The tensors of which any target wants something from this rank; none before a send."""
        return frozenset(region.name for wish in self._wishes for region in wish.regions)

    def close(self) -> None:
        """Leave every target."""
        for wire in self._wires:
            wire.close()

    # --- the first time --------------------------------------------------------------------------

    def _collect(self, stream: WeightStream, version: int) -> dict[str, Tensor]:
        tensors = dict(stream)
        header = stream.header
        wrong = sorted(tensors.keys() ^ header.shapes.keys()) + [
            name
            for name in tensors.keys() & header.shapes.keys()
            if tuple(tensors[name].shape) != header.part(name).shape
        ]
        if wrong:
            raise WeightSyncError(
                f"what {self._source.named(self._rank)} exports as version {version} differs from "
                f"its own header in {wrong}"
            )
        return tensors

    def _announced(self, header: Header) -> Header:
        """Return the header of what is sent, in the dtypes in which it is."""
        wanted = self._terms.dtype
        dtypes = {
            name: wanted if wanted and dtype_of(dtype).is_floating_point else dtype
            for name, dtype in header.dtypes.items()
        }
        return Header(0, header.shapes, 0, dtypes, header.parts, dtype=wanted)

    def _meet(self, header: Header) -> None:
        """Offer what there is to every target, and hear what each wants."""
        me = here(self._source.named(self._rank), self._source.device)
        targets = range(self._target.ranks)
        for target in targets:
            self._channel.put(Offer(me, header), key=offer_key(self._rank, target))
        keys = {target: wish_key(self._rank, target) for target in targets}
        self._wishes = roll_call(
            self._replies, keys, self._target, self._terms.timeout, Patience.WISH
        )
        self._wires = [
            make_wire(
                choose_way(me, wish.endpoint, self._terms.way), me, wish.endpoint,
                self._terms.timeout,
            )
            for wish in self._wishes
        ]  # fmt: skip

    # --- every time ------------------------------------------------------------------------------

    def _update(self, tensors: Mapping[str, Tensor], version: int, select: Select) -> Receipt:
        audience: dict[Selection, list[int]] = {}  # who gets the same
        for target, holds in enumerate(self._ready()):
            chosen = select(self._wishes[target], holds)
            audience.setdefault(chosen, []).append(target)
        sent, names = 0, set[str]()
        parts: list[tuple[list[list[Region]], list[int]]] = []
        for (regions, base), targets in audience.items():
            made = buckets(regions, self._entry_bytes, self._terms.bucket)
            size = sum(region.part.size * self._entry_bytes(region.name) for region in regions)
            told = frozenset(region.name for region in regions)
            for target in targets:
                self._put(target, Update(version, base, told, size, len(made)))
            parts.append((made, targets))
            sent += size * len(targets)
            names |= told
        # By number first: every source is as far with one target as with another, so none waits
        # for a target that waits for a source that waits.
        marks = [
            self._send_bucket(tensors, made[number], number, targets)
            for number in range(max((len(made) for made, _ in parts), default=0))
            for made, targets in parts
            if number < len(made)
        ]
        return Receipt(len(names), f"{combine(marks):016x}", version, sent)

    def _ready(self) -> list[int]:
        """Return the version that each target holds, where they say; wait until they do."""
        if self._terms.window is None:
            return [-1] * len(self._wishes)
        grants = self._grants(range(len(self._wishes)), Patience.READY)
        return [grant.holds for grant in grants]

    def _grants(self, targets: Sequence[int], patience: Patience) -> list[Grant]:
        keys = {target: grant_key(self._rank, target) for target in targets}
        return roll_call(self._replies, keys, self._target, self._terms.timeout, patience)

    def _send_bucket(
        self, tensors: Mapping[str, Tensor], part: list[Region], number: int, targets: list[int]
    ) -> int:
        pieces = [self._piece(tensors[region.name], region) for region in part]
        mark = fingerprint(pieces)
        for target in targets:
            if self._terms.window is not None and number >= self._terms.window:
                self._grants([target], Patience.BUCKET)
            wire = self._wires[target]
            self._put(target, Bucket(tuple(part), wire.pack(pieces), mark))
            wire.deliver()
        for target in targets:
            self._wires[target].finish()
        return mark

    def _piece(self, tensor: Tensor, region: Region) -> Tensor:
        assert self._offered is not None
        piece = tensor.detach()[region.part.within(self._offered.part(region.name))]
        dtype = self._offered.dtypes[region.name]
        return (
            piece if dtype_name(piece.dtype) == dtype else piece.to(dtype_of(dtype))
        ).contiguous()

    def _entry_bytes(self, name: str) -> int:
        assert self._offered is not None
        return dtype_of(self._offered.dtypes[name]).itemsize

    def _put(self, target: int, message: Any) -> None:
        self._channel.put(message, key=update_key(self._rank, target))
