"""Queue: what a channel holds and who gets it next. No waiting, no processes; both runtimes use it.

A reader leaves a :class:`Request`; whoever changes the queue settles the requests that can be
settled then, in one piece, so that no item is ever lost or halved between readers. A request by
weight at the head of its line gathers items while it waits, and what it gathered takes no room. Nor
does what a waiting reader gets at once: a full channel of which one key is not read stops no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from rlinf_core.errors import (
    ChannelClosed,
    ChannelTimeout,
    ProducerGone,
    RuntimeFailure,
    StaleDataError,
)
from rlinf_core.protocols.dequeue_policy import DequeuePolicy
from rlinf_core.protocols.runtime import ChannelSpec


class Entry(NamedTuple):
    """One item in a channel."""

    item: Any
    weight: float
    version: int | None


class Request:
    """A reader's wish, and what came of it.

    Args:
        consumer: who reads.
        key: whose items.
        weight: gather items until their weights add up to it; None wants exactly one item.
    """

    def __init__(self, consumer: Hashable, key: Hashable, weight: float | None) -> None:
        self.consumer, self.key, self.weight = consumer, key, weight
        self.entries: list[Entry] = []
        self.error: RuntimeFailure | None = None
        self.settled = weight is not None and weight <= 0

    def result(self) -> list[Any]:
        """Return the items, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return [entry.item for entry in self.entries]

    def fail(self, error: RuntimeFailure) -> None:
        """Settle it with an error."""
        self.error, self.settled = error, True

    def take(self, entry: Entry) -> None:
        """Take one more item, and settle it if that is enough."""
        self.entries.append(entry)
        gathered = sum(entry.weight for entry in self.entries)
        self.settled = self.weight is None or gathered >= self.weight


class ItemQueue:
    """The state of one channel.

    Args:
        name: of the channel, for messages.
        spec: how it behaves.
        policy: who gets what, where several items or readers wait.
        drop: told of every item that was let in and that nobody will get: it is too old, or the
            queue was cleared.
    """

    def __init__(
        self,
        name: str,
        spec: ChannelSpec,
        policy: DequeuePolicy,
        drop: Callable[[Any], None] = lambda item: None,
    ) -> None:
        self.name, self.spec = name, spec
        self._policy, self._drop = policy, drop
        self._lines: dict[Hashable, deque[Entry]] = {}
        self._requests: dict[Hashable, list[Request]] = {}
        self._consumers: dict[Hashable, int] = {}  # in the order of their first request
        self._served: list[float] = []
        self._size, self._newest = 0, 0
        self._closed = False
        self._lost = ""

    # --- writers ---------------------------------------------------------------------------------

    def room(self, key: Hashable) -> bool:
        """Return whether :meth:`put` may be called now; also true where it raises."""
        over = self._closed or bool(self._lost)
        return over or self._size < self.spec.capacity or key in self._requests

    def put(self, item: Any, key: Hashable, weight: float, version: int | None) -> None:
        """Add an item.

        Raises:
            ChannelClosed: the stream has ended.
            ProducerGone: somebody who wrote to the channel is gone.
        """
        if self._closed:
            raise ChannelClosed(f"put into the channel {self.name!r}, which is closed")
        if self._lost:
            raise ProducerGone(f"put into the channel {self.name!r}, and {self._lost}")
        self.announce(version)
        self._lines.setdefault(key, deque()).append(Entry(item, weight, version))
        self._size += 1
        self._settle(key)

    def announce(self, version: int | None) -> None:
        """Take note of the newest version of the weights that anybody knows of."""
        if version is not None:
            self._newest = max(self._newest, version)

    def close(self) -> None:
        """End the stream; what is in it can still be read."""
        self._closed = True
        self._settle_all()

    def lose(self, why: str) -> None:
        """Take note that somebody who writes or reads is gone: whoever waits is told ``why``."""
        self._lost = self._lost or why
        self._settle_all()

    # --- readers ---------------------------------------------------------------------------------

    def ask(self, consumer: Hashable, key: Hashable, weight: float | None) -> Request:
        """Leave a request; it may be settled at once."""
        request = Request(consumer, key, weight)
        if consumer not in self._consumers:
            self._consumers[consumer] = len(self._consumers)
            self._served.append(0.0)
        if not request.settled:
            self._requests.setdefault(key, []).append(request)
            self._settle(key)
        return request

    def withdraw(self, request: Request) -> None:
        """Forget a request and put back, in their order, the items that it had gathered."""
        line = self._requests.get(request.key, [])
        if request in line:
            line.remove(request)
            self._give_back(request)
            self._settle(request.key)

    def clear(self) -> None:
        """Drop every item that it holds, for a queue that is used no more."""
        gathered = [e for line in self._requests.values() for r in line for e in r.entries]
        for entry in [*gathered, *(e for line in self._lines.values() for e in line)]:
            self._drop(entry.item)
        self._lines, self._requests = {}, {}

    def time_out(self, request: Request) -> ChannelTimeout:
        """Forget a request that took too long; return what to tell the reader."""
        self.withdraw(request)
        key = "" if request.key is None else f" for {request.key!r}"
        return ChannelTimeout(f"nothing came in time in the channel {self.name!r}{key}")

    # --- within ----------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        for key in list(self._requests):
            self._settle(key)

    def _settle(self, key: Hashable) -> None:
        line, requests = self._lines.setdefault(key, deque()), self._requests.get(key, [])
        while requests:
            while line and requests:
                self._hand_over(line, requests)
            if not requests or not (self._closed or self._lost):
                break
            request = self._next(requests)
            requests.remove(request)
            self._end(request)  # which may leave items for the next in line
        if not line:
            del self._lines[key]
        if key in self._requests and not requests:
            del self._requests[key]

    def _hand_over(self, line: deque[Entry], requests: list[Request]) -> None:
        request = self._next(requests)
        asker = self._consumers[request.consumer]
        entry = self._pick(line, asker)
        self._size -= 1
        if late := self._too_old(entry):
            self._drop(entry.item)
            self._give_back(request)  # what it had gathered is for whoever asks next
            request.fail(StaleDataError(late))
        else:
            self._served[asker] += entry.weight
            request.take(entry)
        if request.settled:
            requests.remove(request)

    def _next(self, requests: list[Request]) -> Request:
        """Return whom to serve: who has begun to gather goes on, else as the policy says."""
        for request in requests:
            if request.entries:
                return request
        if len(requests) == 1:
            return requests[0]
        waiting = [self._consumers[request.consumer] for request in requests]
        return requests[self._policy.turn(waiting, self._served)]

    def _pick(self, line: deque[Entry], asker: int) -> Entry:
        if len(line) == 1:
            return line.popleft()
        index = self._policy.choose([entry.weight for entry in line], asker, self._served)
        entry = line[index]
        del line[index]
        return entry

    def _too_old(self, entry: Entry) -> str:
        limit = self.spec.max_staleness
        if limit is None or entry.version is None or self._newest - entry.version <= limit:
            return ""
        return (
            f"the channel {self.name!r} holds an item of weights {entry.version}; the newest are "
            f"{self._newest} and at most {limit} behind are accepted"
        )

    def _give_back(self, request: Request) -> None:
        """Put back, in their order and before all others, the items that a reader had gathered."""
        self._lines.setdefault(request.key, deque()).extendleft(reversed(request.entries))
        self._size += len(request.entries)
        self._served[self._consumers[request.consumer]] -= sum(e.weight for e in request.entries)
        request.entries = []

    def _end(self, request: Request) -> None:
        """Tell a reader that what it waits for will not come."""
        there = f"; {len(request.entries)} items weigh less than it asks for, and stay"
        gathered = there if request.entries else ""
        self._give_back(request)
        if self._lost:
            request.fail(ProducerGone(f"the channel {self.name!r} ends early: {self._lost}"))
        else:
            text = f"the channel {self.name!r} is closed and holds nothing more"
            request.fail(ChannelClosed(f"{text} for this reader{gathered}"))
