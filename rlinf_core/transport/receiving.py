"""Receiver: a target's end of a weight transport. What is said stands in ``messages.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlinf_core.errors import WeightSyncError
from rlinf_core.protocols.rollout_engine import RolloutEngine
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
from rlinf_core.transport.routes import Part, Region, route
from rlinf_core.transport.ways import choose_way
from rlinf_core.transport.weights import Header, Piece, WeightStream, dtype_of
from rlinf_core.transport.wires import Form, Wire, here, make_wire


class _Known(NamedTuple):
    """What was agreed on with the sources."""

    header: Header
    wires: list[Wire]


class Receiver:
    """One rank of the target.

    Args:
        channel: from the sources.
        replies: to them.
        source: the other end.
        target: this end; its rank is this process's.
        terms: how they send.
    """

    def __init__(
        self, channel: Channel, replies: Channel, source: Layout, target: Layout, terms: Terms
    ) -> None:
        self._channel, self._replies, self._terms = channel, replies, terms
        self.source, self.window = source, terms.window
        self._rank, self._target = target.own_rank, target
        self._known: _Known | None = None
        self._version: int | None = None

    def receive(
        self,
        engine: RolloutEngine,
        holds: int,
        load: Callable[[RolloutEngine, WeightStream], None],
    ) -> Receipt:
        """Wait for an update from every source and hand it to ``load``.

        Args:
            engine: what it is for.
            holds: the version that it can be brought on from; -1 where it needs everything.
            load: loads a stream into it.

        Raises:
            WeightSyncError: see :class:`rlinf_core.protocols.weight_transport.WeightTransport`.
        """
        known = self._known = self._known or self._meet(engine)
        sources = range(self.source.ranks)
        if self.window is not None:
            for source in sources:
                self.grant(source, holds)
        updates: list[Update] = self.hear(sources, Patience.UPDATE)
        header = self._header(known.header, updates)
        incoming = _Incoming(self, known, updates)
        load(engine, WeightStream(header, incoming.pieces()))
        if incoming.left:
            raise WeightSyncError(
                f"the engine of {self._target.named(self._rank)} took weights of version "
                f"{header.version} without {incoming.left} of their buckets; wanted all"
            )
        self._version = header.version
        checksum = f"{combine(incoming.marks):016x}"
        return Receipt(len(header.names), checksum, header.version, header.bytes)

    def close(self) -> None:
        """Leave every source."""
        for wire in self._known.wires if self._known else ():
            wire.close()

    # --- the first time --------------------------------------------------------------------------

    def _meet(self, engine: RolloutEngine) -> _Known:
        """Hear what every source has, and tell each what is wanted from it."""
        me = here(self._target.named(self._rank), self._target.device)
        keys = {source: offer_key(source, self._rank) for source in range(self.source.ranks)}
        offers: list[Offer] = roll_call(
            self._channel, keys, self.source, self._terms.timeout, Patience.OFFER
        )
        header = self._merge(offers)
        wants: Callable[[Header], Mapping[str, Part]] | None = getattr(engine, "wants", None)
        header = Header(
            -1, header.shapes, 0, header.dtypes, wants(header) if wants else {}, dtype=header.dtype
        )
        routes = route(
            [{name: offer.header.part(name) for name in offer.header.shapes} for offer in offers],
            {name: header.part(name) for name in header.shapes},
            lambda name: dtype_of(header.dtypes[name]).itemsize,
        )
        wires = []
        for source, (offer, regions) in enumerate(zip(offers, routes, strict=True)):
            way = choose_way(offer.endpoint, me, self._terms.way)
            wires.append(make_wire(way, offer.endpoint, me, self._terms.timeout))
            self._replies.put(Wish(me, tuple(regions)), key=wish_key(source, self._rank))
        return _Known(header, wires)

    def _merge(self, offers: Sequence[Offer]) -> Header:
        """Return the header of all that sources have together."""
        shapes: dict[str, tuple[int, ...]] = {}
        dtypes: dict[str, str] = {}
        for offer in offers:
            header, who = offer.header, offer.endpoint.name
            if header.dtype != self._terms.dtype:
                raise WeightSyncError(
                    f"{who} sends floating-point numbers as {header.dtype or 'it holds them'}; "
                    f"{self._target.named(self._rank)} agreed to {self._terms.dtype or 'no'} "
                    "conversion (weights.dtype)"
                )
            for name, shape in header.shapes.items():
                found = (tuple(shape), header.dtypes[name])
                first = (
                    shapes.setdefault(name, found[0]),
                    dtypes.setdefault(name, found[1]),
                )
                if found != first:
                    raise WeightSyncError(
                        f"sources differ in {name!r}: {who} has {list(found[0])} of {found[1]}, "
                        f"another {list(first[0])} of {first[1]}"
                    )
        return Header(-1, shapes, 0, dtypes, dtype=self._terms.dtype)

    # --- every time ------------------------------------------------------------------------------

    def _header(self, known: Header, updates: Sequence[Update]) -> Header:
        versions = sorted({update.version for update in updates})
        if len(versions) > 1:
            raise WeightSyncError(
                f"sources send weights of versions {versions} in one update; wanted one"
            )
        version = versions[0]
        if self._version is not None and version <= self._version:
            raise WeightSyncError(
                f"weights of version {version} came after those of version {self._version}; wanted "
                "versions that go up"
            )
        bases = {update.base for update in updates} - {None}
        if len(bases) > 1:
            raise WeightSyncError(
                f"sources send what changed since versions {sorted(map(str, bases))}"
            )
        return Header(
            version,
            known.shapes,
            sum(update.bytes for update in updates),
            known.dtypes,
            known.parts,
            base=next(iter(bases), None),
            changed=frozenset[str]().union(*(update.names for update in updates)),
            dtype=known.dtype,
        )

    def hear(self, sources: Sequence[int], patience: Patience) -> list[Any]:
        """Return the next message of an update from each of these sources."""
        keys = {source: update_key(source, self._rank) for source in sources}
        return roll_call(self._channel, keys, self.source, self._terms.timeout, patience)

    def grant(self, source: int, holds: int = -1) -> None:
        """Tell a source that there is room for more."""
        self._replies.put(Grant(holds), key=grant_key(source, self._rank))


class _Incoming:
    """The buckets of one update, from all sources in turn."""

    def __init__(self, receiver: Receiver, known: _Known, updates: Sequence[Update]) -> None:
        self._receiver, self._known, self._updates = receiver, known, updates
        self.left = sum(update.buckets for update in updates)
        self.marks: list[int] = []

    def pieces(self) -> Iterator[Piece]:
        """Yield what comes; without a window, everything is there and checked before the first."""
        window = self._receiver.window
        buckets = self._buckets(window)
        for bucket in buckets if window is not None else list(buckets):
            yield from bucket

    def _buckets(self, window: int | None) -> Iterator[list[Piece]]:
        number = 0
        while self.left:
            for source, update in enumerate(self._updates):
                if number >= update.buckets:
                    continue
                bucket = self._open(source, number)
                self.left -= 1
                yield bucket
                if window is not None and number + window < update.buckets:
                    self._receiver.grant(source)
            number += 1

    def _open(self, source: int, number: int) -> list[Piece]:
        bucket: Bucket = self._receiver.hear([source], Patience.BUCKET)[0]
        header = self._known.header
        forms = [Form(r.part.shape, dtype_of(header.dtypes[r.name])) for r in bucket.regions]
        tensors = self._known.wires[source].unpack(bucket.ticket, forms)
        for region, tensor, form in zip(bucket.regions, tensors, forms, strict=True):
            if tuple(tensor.shape) != form.shape or tensor.dtype != form.dtype:
                raise WeightSyncError(
                    f"{region.name!r} came as {list(tensor.shape)} of {tensor.dtype}; wanted "
                    f"{list(form.shape)} of {form.dtype}"
                )
        mark = fingerprint(tensors)
        if mark != bucket.fingerprint:
            who = self._receiver.source.named(source)
            raise WeightSyncError(
                f"the checksum of bucket {number} from {who} is {mark:016x}, and was "
                f"{bucket.fingerprint:016x} when it was sent"
            )
        self.marks.append(mark)
        return [self._piece(r, tensor) for r, tensor in zip(bucket.regions, tensors, strict=True)]

    def _piece(self, region: Region, tensor: Any) -> Piece:
        whole = region.part == self._known.header.part(region.name)
        return Piece(region.name, tensor, None if whole else region.part)
