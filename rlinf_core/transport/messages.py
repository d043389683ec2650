"""What the two ends of a weight transport say to each other, over channels of the runtime.

Once, after both were opened: every source offers what it has (:class:`Offer`), every target answers
with what it wants from each source (:class:`Wish`). Then, for every update, an :class:`Update` and
its buckets go from each source to each target. Where memory is bounded, a source waits before each
of them for a :class:`Grant`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rlinf_core.transport.routes import Region
from rlinf_core.transport.ways import Endpoint
from rlinf_core.transport.weights import Header


@dataclass(frozen=True)
class Terms:
    """What both ends were configured with.

    Attributes:
        dtype: name of the dtype that floating-point numbers are sent in; None as they are held.
        way: name of a way, or "auto".
        timeout: seconds to wait for another rank.
        bucket: most bytes of a bucket; None puts everything into one.
        window: how many buckets may be under way to a target; None any number, which waits for
            nobody.
    """

    dtype: str | None
    way: str
    timeout: float
    bucket: int | None = None
    window: int | None = None


class Offer(NamedTuple):
    """What a source has, in the dtypes in which it sends it."""

    endpoint: Endpoint
    header: Header


class Wish(NamedTuple):
    """What a target wants from one source, in every update."""

    endpoint: Endpoint
    regions: tuple[Region, ...]


class Grant(NamedTuple):
    """A target is ready for more.

    Attributes:
        holds: version of the weights that its engine holds; -1 where it holds none.
    """

    holds: int


class Update(NamedTuple):
    """What a source is about to send to one target.

    Attributes:
        version: of the weights.
        base: the version on top of which these go; None where nothing is left out.
        names: of the tensors of which something is sent.
        bytes: sum over all buckets.
        buckets: how many follow.
    """

    version: int
    base: int | None
    names: frozenset[str]
    bytes: int
    buckets: int


class Bucket(NamedTuple):
    """Some tensors, or parts of them.

    Attributes:
        regions: what they are.
        ticket: what the target's wire needs to get them.
        fingerprint: see :func:`rlinf_core.transport.checksum.fingerprint`.
    """

    regions: tuple[Region, ...]
    ticket: Any
    fingerprint: int


def offer_key(source: int, target: int) -> tuple[str, int, int]:
    """Return the key of a source's offer."""
    return ("offer", source, target)


def update_key(source: int, target: int) -> tuple[str, int, int]:
    """Return the key of a source's updates and their buckets."""
    return ("update", source, target)


def wish_key(source: int, target: int) -> tuple[str, int, int]:
    """Return the key of a target's wish."""
    return ("wish", source, target)


def grant_key(source: int, target: int) -> tuple[str, int, int]:
    """Return the key of a target's grants."""
    return ("grant", source, target)
