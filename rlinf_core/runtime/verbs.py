"""What is said to the switchboard, and by it.

Messages are tuples that begin with a :class:`Verb`; each is answered by one message, but for those
that say they are not.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Verb(enum.Enum):
    """What a message is about."""

    # from a worker or the driver; channels are numbered in the order in which it named them
    NAME = enum.auto()  # channel, spec; not answered
    PUT = enum.auto()  # number of a channel, parcel, key, weight, version -> DONE
    GET = enum.auto()  # number of a channel, key, weight, version -> ITEMS
    CLOSE = enum.auto()  # number of a channel -> DONE
    ENTER = enum.auto()  # devices, order -> DONE, when they are free
    LEFT = enum.auto()  # not answered: devices are free
    BYE = enum.auto()  # not answered: what follows is no failure
    RESUME = enum.auto()  # not answered: what follows is asked for after the last RESET
    # from the driver
    JOIN = enum.auto()  # name; comes with a socket; not answered
    CANCEL = enum.auto()  # not answered: nobody waits for anything any more
    RESET = enum.auto()  # owners of memory that are gone -> RESET: what all wait for is dropped
    WAITING = enum.auto()  # -> WAITING, what each client waits for and since when it was silent
    # from the switchboard
    DONE = enum.auto()
    ITEMS = enum.auto()  # parcels
    FAILED = enum.auto()  # error
    CANCELLED = enum.auto()
    DROPPED = enum.auto()  # the call that asked is ended by a RESET
    LEAVE = enum.auto()  # not asked for: free the devices and say LEFT


UNANSWERED = (Verb.NAME, Verb.LEFT, Verb.BYE, Verb.RESUME)


class Waiting(NamedTuple):
    """What a client is at, as far as the switchboard knows.

    Attributes:
        what: it waits for; "" where it does not.
        since: when it last said anything, in seconds of the machine's monotonic clock.
    """

    what: str
    since: float
