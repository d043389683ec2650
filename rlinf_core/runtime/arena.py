"""Arena: shared memory in which one process leaves items for others, one copy each.

The writer owns an :class:`Arena`: segments of nameless shared memory, cut into blocks of one size
each. An item takes one block. A reader maps a segment once (:class:`Mappings`) and gets views of
the block; when the last view is gone, a byte in the segment says that the block is free again. So
memory that was once paged in is used again and again, and no message is needed to give it back.

Views are leased and meant to be read only. An item has one reader, so that writing to it harms
nobody else; but it is not a promise.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlinf_core.errors import RuntimeFailure

_ALIGNMENT = 64  # bytes: a cache line
_SMALLEST = 1 << 16  # bytes of the smallest block
_SEGMENT = 1 << 25  # bytes of a segment, where no block is larger
_HEAD = 1 << 12  # bytes before the first block: one flag for each

_FREE, _TAKEN = 0, 1

Bytes = npt.NDArray[np.uint8]


class Block(NamedTuple):
    """Where an item's buffers lie: segment, block, and the size in bytes of each buffer."""

    segment: int
    number: int
    size: int
    sizes: tuple[int, ...]


class _Segment:
    """One piece of shared memory, mapped in this process."""

    def __init__(self, fd: int, size: int, blocks: int) -> None:
        self.fd, self.size, self.blocks = fd, size, blocks
        self.map = mmap.mmap(fd, _HEAD + size * blocks)
        self.bytes: Bytes = np.frombuffer(self.map, np.uint8)
        self.flags = self.bytes[:blocks]
        self._reserved: set[int] = set()  # blocks that the owner has used before

    def reserve(self, number: int) -> None:
        """Have the system find memory for a block; whoever writes where there is none is killed."""
        if number not in self._reserved:
            os.posix_fallocate(self.fd, _HEAD + self.size * number, self.size)
            self._reserved.add(number)

    def block(self, number: int) -> Bytes:
        start = _HEAD + self.size * number
        return self.bytes[start : start + self.size]


class Arena:
    """What one process writes for others to read."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def store(self, buffers: Sequence[memoryview]) -> Block:
        """Copy buffers into a free block, making one where there is none.

        Raises:
            RuntimeFailure: the system has no memory for it.
        """
        sizes = tuple(buffer.nbytes for buffer in buffers)
        size = _block_size(sum(map(_aligned, sizes)))
        try:
            segment, number = self._find(size)
        except OSError as error:
            held = sum(s.size * s.blocks for s in self._segments)
            raise RuntimeFailure(no_memory(size, held, error)) from error
        target, offset = self._segments[segment].block(number), 0
        for buffer, size in zip(buffers, sizes, strict=True):
            target[offset : offset + size] = np.frombuffer(buffer, np.uint8)
            offset += _aligned(size)
        return Block(segment, number, self._segments[segment].size, sizes)

    def descriptor(self, segment: int) -> tuple[int, int, int]:
        """Return a segment's file descriptor, the size of its blocks and their number."""
        found = self._segments[segment]
        return found.fd, found.size, found.blocks

    def free(self, block: Block) -> None:
        """Take back a block that was never sent."""
        self._segments[block.segment].flags[block.number] = _FREE

    def close(self) -> None:
        """Close the files; whoever has mapped them keeps the memory."""
        for segment in self._segments:
            os.close(segment.fd)
        self._segments = []

    @property
    def taken(self) -> int:
        """How many blocks hold an item that somebody has yet to read or is reading."""
        return sum(int(np.count_nonzero(segment.flags)) for segment in self._segments)

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def _find(self, size: int) -> tuple[int, int]:
        for index, segment in enumerate(self._segments):
            if segment.size == size and (free := np.flatnonzero(segment.flags == _FREE)).size:
                segment.reserve(int(free[0]))
                segment.flags[free[0]] = _TAKEN
                return index, int(free[0])
        blocks = max(1, min(_SEGMENT // size, _HEAD))
        fd = os.memfd_create("rlinf", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, _HEAD + size * blocks)
            os.posix_fallocate(fd, 0, _HEAD)
            segment = _Segment(fd, size, blocks)
            segment.reserve(0)
        except BaseException:
            os.close(fd)
            raise
        self._segments.append(segment)
        segment.flags[0] = _TAKEN
        return len(self._segments) - 1, 0


class Mappings:
    """What one process has mapped of others' arenas."""

    def __init__(self) -> None:
        self._segments: dict[tuple[str, int], _Segment] = {}
        self._leases: dict[int, weakref.ref[Bytes]] = {}

    def add(self, owner: str, segment: int, fd: int, size: int, blocks: int) -> None:
        """Map a segment; the descriptor is this object's from now on."""
        if (owner, segment) in self._segments:
            os.close(fd)
            return
        self._segments[owner, segment] = _Segment(fd, size, blocks)
        os.close(fd)

    def forget(self, owners: Iterable[str]) -> None:
        """Unmap what these processes wrote, as soon as nobody holds a view of it."""
        for place in [place for place in self._segments if place[0] in owners]:
            del self._segments[place]

    def view(self, owner: str, block: Block) -> list[Bytes]:
        """Return an item's buffers; the block is free again when the last view of any is gone."""
        segment = self._segments[owner, block.segment]
        start = _HEAD + segment.size * block.number
        # Over the map and not over the array, so that views of it keep this very object alive.
        lease: Bytes = np.frombuffer(segment.map, np.uint8, segment.size, start)
        mark, flags, number = id(lease), segment.flags, block.number

        def release(_: object) -> None:
            del self._leases[mark]
            flags[number] = _FREE

        self._leases[mark] = weakref.ref(lease, release)
        views, offset = [], 0
        for size in block.sizes:
            views.append(lease[offset : offset + size])
            offset += _aligned(size)
        return views


def no_memory(size: int, held: int, error: OSError) -> str:
    """Say that there is no shared memory, and what to do."""
    return (
        f"no shared memory for {size / 2**20:.1f} MiB more, on top of up to {held / 2**20:.0f} MiB "
        f"that this process shares: {error.strerror}. It counts against the memory of the machine "
        "or container: give it more, or make what is shared smaller (collect.envs, collect.steps; "
        "with collect.stages there are more and smaller pieces)"
    )


def free_block(fd: int, block: Block) -> None:
    """Free a block of a segment that is not mapped here."""
    os.pwrite(fd, bytes([_FREE]), block.number)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _block_size(size: int) -> int:
    """Return the size of block for an item: powers of two, so that few sizes exist."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())
