"""Sizes in bytes, of which some parts may be unknown: never counted as zero, always named.

And how sizes and times are said to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlinf_core.specs import Facts, Unknown

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class Size:
    """A number of bytes.

    Attributes:
        known: bytes that are known.
        unknown: why the rest is not, one sentence for each part; empty where all is known.
    """

    known: int = 0
    unknown: tuple[str, ...] = ()

    @staticmethod
    def of(value: int | Unknown, what: str) -> Size:
        """Return the size that a fact gives; ``what`` says of what."""
        return Size(0, (f"{what}: {value.reason}",)) if isinstance(value, Unknown) else Size(value)

    def __add__(self, other: Size) -> Size:
        return Size(self.known + other.known, tuple(dict.fromkeys(self.unknown + other.unknown)))

    def __mul__(self, factor: int) -> Size:
        return Size(self.known * factor, self.unknown) if factor else Size()

    def __str__(self) -> str:
        if not self.unknown:
            return in_words(self.known)
        return f"at least {in_words(self.known)}" if self.known else "unknown"

    def as_json(self) -> dict[str, Any]:
        """Return ``bytes`` (null where any part is unknown), ``at_least`` and ``unknown``."""
        return {
            "bytes": None if self.unknown else self.known,
            "at_least": self.known,
            "unknown": list(self.unknown),
        }


def in_words(number: int) -> str:
    """Return bytes with three digits: ``1.02 MB``; units are powers of 1000."""
    value, unit = float(number), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def in_seconds(number: float) -> str:
    """Return seconds with three digits: ``1.02 s``, ``12.3 ms``, ``85 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if number * factor >= 0.9995 or unit == "us":
            return f"{number * factor:.3g} {unit}"
    raise AssertionError("the last unit takes all")


def space_size(space: Any, what: str) -> Size:
    """Return the bytes of one element of a Gymnasium space of boxes, or of a nest of them."""
    if isinstance(space, Unknown):
        return Size.of(space, what)
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        total = Size()
        for name, part in inner.items():
            total += space_size(part, f"{what} {name!r}")
        return total
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None:
        return Size(0, (f"{what}: {space} has no fixed size",))
    size = int(dtype.itemsize)
    for length in shape:
        size *= int(length)
    return Size(size)


def observation_size(facts: Facts) -> Size:
    """Return the bytes of what one environment shows."""
    spaces = facts.spaces
    return space_size(spaces if isinstance(spaces, Unknown) else spaces.observation, "observations")


def action_size(facts: Facts) -> Size:
    """Return the bytes of one action of one environment, in float32 as a chunk holds it."""
    spaces = facts.spaces
    if isinstance(spaces, Unknown):
        return Size.of(spaces, "actions")
    (width,) = spaces.action.shape
    return Size(4 * int(width))
