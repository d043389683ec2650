"""Roll call: one message from each of several ranks; who is missing is named.

Who waits for somebody that may wait for others waits longer than they do, so that the one who is
really missing is named, and not who waits for it.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Hashable, Mapping
from typing import Any

from rlinf_core.errors import ChannelTimeout, WeightSyncError
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.weight_transport import Layout


class Patience(enum.IntEnum):
    """What is waited for, and how many times as long as for a rank that waits for nobody."""

    OFFER = 1  # the first thing that a source sends
    READY = 1  # the first thing that a target sends
    WISH = 2  # of a target that may wait for the offers of other sources
    UPDATE = 3  # of a source that may wait for the wishes of other targets
    BUCKET = 4  # of a source, or room for one at a target, that may wait for any of these


def roll_call(
    channel: Channel, keys: Mapping[int, Hashable], end: Layout, timeout: float, patience: Patience
) -> list[Any]:
    """Return one message from each rank, in the order of ``keys``.

    Args:
        channel: where they come.
        keys: rank to the key of its message.
        end: the end that these ranks are of.
        timeout: seconds in which a rank that does what it should has answered.
        patience: how many times as long to wait.

    Raises:
        WeightSyncError: ranks are missing; it names all of them.
    """
    timeout *= patience
    deadline = time.monotonic() + timeout
    found, missing = [], []
    for rank, key in keys.items():
        try:
            found.append(channel.get(key=key, timeout=max(deadline - time.monotonic(), 0.0)))
        except ChannelTimeout:
            missing.append(rank)
    if missing:
        names = ", ".join(end.named(rank) for rank in missing)
        raise WeightSyncError(
            f"{names} {'is' if len(missing) == 1 else 'are'} missing among {end.ranks} ranks: "
            f"nothing came within {timeout:g} s (weights.timeout); see what they do, or wait longer"
        )
    return found
