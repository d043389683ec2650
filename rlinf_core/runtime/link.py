"""Link: messages between two processes, with items whose memory is shared instead of sent.

An item travels as a :class:`Parcel`. Small ones lie in the message itself; the buffers of others
lie in a block of the sender's arena, of which the parcel tells where. The segment that holds the
block is announced, with its file descriptor, the first time that it is needed on a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from rlinf_core.runtime.arena import Arena, Block, Mappings, free_block
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.packing import pack, unpack

_INLINE = 1 << 15  # bytes: up to here copying twice more costs less than a block
_MOST_FDS = 32  # in one message; Linux takes 253


class Parcel(NamedTuple):
    """An item on its way: its pickle and its buffers, or the block where all of that lies."""

    head: bytes
    buffers: tuple[bytes, ...] = ()
    owner: str = ""
    block: Block | None = None


class Segment(NamedTuple):
    """What it takes to map a segment, besides its descriptor."""

    owner: str
    number: int
    size: int
    blocks: int


class Store(Protocol):
    """Where a link finds the segments that it sends, and leaves those that come."""

    def find(self, owner: str, number: int) -> tuple[Segment, int]:
        """Return a segment and its descriptor."""
        ...

    def keep(self, segment: Segment, fd: int) -> None:
        """Take a segment that came; the descriptor is the store's from now on."""
        ...


class Memory:
    """A process's own arena and what it has mapped of others': the store of both ends.

    Args:
        owner: name of this process, unique within the runtime.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._arena, self._mappings = Arena(), Mappings()

    def pack(self, item: object) -> Parcel:
        """Return an item ready to be sent; large buffers are copied once, into shared memory."""
        head, buffers = pack(item)
        if len(head) + sum(buffer.nbytes for buffer in buffers) <= _INLINE:
            return Parcel(head, tuple(bytes(buffer) for buffer in buffers))
        return Parcel(b"", (), self.owner, self._arena.store([memoryview(head), *buffers]))

    def unpack(self, parcel: Parcel) -> Any:
        """Return the item; its tensors lie in the memory that the sender wrote."""
        if parcel.block is None:
            return unpack(parcel.head, [bytearray(buffer) for buffer in parcel.buffers])
        if parcel.owner == self.owner:  # it comes back to who sent it
            segment, fd = self.find(self.owner, parcel.block.segment)
            self.keep(segment, os.dup(fd))
        head, *buffers = self._mappings.view(parcel.owner, parcel.block)
        return unpack(head, buffers)

    def find(self, owner: str, number: int) -> tuple[Segment, int]:
        """Return a segment of this process's arena."""
        fd, size, blocks = self._arena.descriptor(number)
        return Segment(owner, number, size, blocks), fd

    def keep(self, segment: Segment, fd: int) -> None:
        """Map a segment of another process's arena."""
        self._mappings.add(segment.owner, segment.number, fd, segment.size, segment.blocks)

    def forget(self, owners: Iterable[str]) -> None:
        """Let go of the segments of processes that are gone; views that are held stay whole."""
        self._mappings.forget(owners)

    def discard(self, parcel: Parcel) -> None:
        """Free the memory of an item that was packed and could not be sent."""
        if parcel.block is not None:
            self._arena.free(parcel.block)

    def close(self) -> None:
        """Close the arena."""
        self._arena.close()


class Link:
    """One end of a connection over which parcels travel.

    Args:
        connection: the socket.
        store: this process's segments.
    """

    def __init__(self, connection: Connection, store: Store) -> None:
        self.connection, self._store = connection, store
        self._known: set[tuple[str, int]] = set()

    def send(self, message: object, parcels: Iterable[Parcel] = ()) -> None:
        """Send a message that holds these parcels. Raises ``OSError`` where nobody listens."""
        new = {(p.owner, p.block.segment) for p in parcels if p.block is not None} - self._known
        found = [self._store.find(*segment) for segment in sorted(new)]
        for start in range(0, len(found), _MOST_FDS):
            some = found[start : start + _MOST_FDS]
            self._send(_Announcement([s for s, _ in some]), [fd for _, fd in some])
        self._known |= new
        self._send(message)

    def _send(self, message: object, fds: Sequence[int] = ()) -> None:
        Connection.send(self.connection, message, fds)  # no words of a child that is gone

    def receive(self) -> Any:
        """Wait for the next message."""
        while isinstance(message := self.connection.receive(), _Announcement):
            fds, self.connection.fds = self.connection.fds, []
            for segment, fd in zip(message.segments, fds, strict=True):
                self._known.add((segment.owner, segment.number))
                self._store.keep(segment, fd)
        return message


class _Announcement(NamedTuple):
    """Segments whose descriptors come along."""

    segments: list[Segment]


class Registry:
    """The segments that pass through a process which reads none of them."""

    def __init__(self) -> None:
        self._there: dict[tuple[str, int], tuple[Segment, int]] = {}

    def find(self, owner: str, number: int) -> tuple[Segment, int]:
        """Return a segment that came before."""
        return self._there[owner, number]

    def keep(self, segment: Segment, fd: int) -> None:
        """Keep the descriptor, to pass it on."""
        place = segment.owner, segment.number
        if place in self._there:
            os.close(fd)
        else:
            self._there[place] = segment, fd

    def forget(self, owners: Iterable[str]) -> None:
        """Let go of the segments of processes that are gone."""
        for place in [place for place in self._there if place[0] in owners]:
            os.close(self._there.pop(place)[1])

    def free(self, parcel: Parcel) -> None:
        """Free the memory of an item that nobody will read."""
        if parcel.block is not None:
            _, fd = self._there[parcel.owner, parcel.block.segment]
            free_block(fd, parcel.block)
