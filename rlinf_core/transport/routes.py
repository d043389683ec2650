"""Routes: which source sends which part of which tensor to a target. Plain arithmetic, no torch.

Every end that knows the same headers comes to the same routes. A tensor that several sources have
whole goes to the one with the least to send so far, so that sources share the sending; one that is
spread over sources is put together from their parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlinf_core.errors import WeightSyncError


class Part(NamedTuple):
    """A box of a tensor's entries: the first index and the number of indices of each dimension."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @staticmethod
    def whole(shape: tuple[int, ...]) -> Part:
        """Return all of a tensor."""
        return Part((0,) * len(shape), tuple(shape))

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def within(self, other: Part) -> tuple[slice, ...]:
        """Return the indices of this part in a tensor that holds ``other``."""
        return tuple(
            slice(start - first, start - first + length)
            for start, first, length in zip(self.start, other.start, self.shape, strict=True)
        )

    def intersection(self, other: Part) -> Part | None:
        """Return what two parts have in common; None where that is nothing."""
        start = tuple(map(max, self.start, other.start))
        end = [
            min(a + m, b + n)
            for a, m, b, n in zip(self.start, self.shape, other.start, other.shape, strict=True)
        ]
        shape = tuple(e - s for e, s in zip(end, start, strict=True))
        return Part(start, shape) if all(length > 0 for length in shape) else None

    def __str__(self) -> str:
        ends = zip(self.start, self.shape, strict=True)
        return f"[{', '.join(f'{start}:{start + length}' for start, length in ends)}]"


class Region(NamedTuple):
    """A part of the tensor of that name."""

    name: str
    part: Part


def route(
    holdings: Sequence[Mapping[str, Part]],
    wanted: Mapping[str, Part],
    entry_bytes: Callable[[str], int],
) -> list[list[Region]]:
    """Return what a target gets from each source, each sorted by name.

    Args:
        holdings: of each source, the part of each tensor that it has.
        wanted: the part of each tensor that the target wants.
        entry_bytes: bytes of one entry of a tensor.

    Raises:
        WeightSyncError: a part of a tensor is nowhere, or sources' parts overlap.
    """
    routes: list[list[Region]] = [[] for _ in holdings]
    loads = [0] * len(holdings)
    # The largest first, so that what is left for the end evens the loads out.
    for name in sorted(wanted, key=lambda n: (-wanted[n].size * entry_bytes(n), n)):
        for part, holders in _cover(name, wanted[name], holdings):
            source = min(holders, key=lambda number: loads[number])
            routes[source].append(Region(name, part))
            loads[source] += part.size * entry_bytes(name)
    return [sorted(regions, key=lambda r: (r.name, r.part.start)) for regions in routes]


def _cover(
    name: str, wanted: Part, holdings: Sequence[Mapping[str, Part]]
) -> list[tuple[Part, list[int]]]:
    """Return parts that make up the one that is wanted, and who has each."""
    found: dict[Part, list[int]] = {}
    for number, holding in enumerate(holdings):
        held = holding.get(name)
        if held is None:
            continue
        common = wanted if not wanted.size else held.intersection(wanted)
        if common == wanted:  # somebody has it all
            all_of_it = [n for n, h in enumerate(holdings) if _holds(h.get(name), wanted)]
            return [(wanted, all_of_it)]
        if common is not None:
            found.setdefault(common, []).append(number)
    parts = list(found)
    missing = wanted.size - sum(part.size for part in parts)
    overlap = any(a.intersection(b) for i, a in enumerate(parts) for b in parts[:i])
    if missing > 0 or overlap or not parts:
        shown = ", ".join(f"{part} at source {found[part][0]}" for part in parts) or "nothing"
        raise WeightSyncError(
            f"the sources' parts of {name!r} do not make up {wanted}: found {shown}; wanted parts "
            "that are equal or do not overlap, and leave nothing out"
        )
    return list(found.items())


def _holds(held: Part | None, wanted: Part) -> bool:
    return held is not None and (not wanted.size or held.intersection(wanted) == wanted)


def buckets(
    regions: Sequence[Region], entry_bytes: Callable[[str], int], limit: int | None
) -> list[list[Region]]:
    """Return regions in buckets of at most ``limit`` bytes, in order; None puts all into one.

    A region that is larger is cut along its first dimension of more than one index.
    """
    if limit is None:
        return [list(regions)] if regions else []
    made: list[list[Region]] = []
    room = 0
    for region in regions:
        for piece in _cut(region, max(1, limit // entry_bytes(region.name))):
            size = piece.part.size * entry_bytes(piece.name)
            if not made or size > room:
                made.append([])
                room = limit
            made[-1].append(piece)
            room -= size
    return made


def _cut(region: Region, entries: int) -> list[Region]:
    """Return a region in pieces of at most so many entries."""
    name, part = region
    along = next((d for d, length in enumerate(part.shape) if length > 1), None)
    if part.size <= entries or along is None:
        return [region]
    length = part.shape[along]
    row = part.size // length
    step = max(1, entries // row)
    pieces = []
    for offset in range(0, length, step):
        start = (*part.start[:along], part.start[along] + offset, *part.start[along + 1 :])
        shape = (*part.shape[:along], min(step, length - offset), *part.shape[along + 1 :])
        piece = Region(name, Part(start, shape))
        pieces += _cut(piece, entries) if row > entries else [piece]
    return pieces
