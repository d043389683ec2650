"""A worker's, or the driver's, end of the switchboard: channels and leases.

One request is under way at a time. While it waits for the answer, a worker that is asked to leave
its devices does so, but never within a lease: then it leaves when the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rlinf_core.errors import ChannelClosed, ProducerGone
from rlinf_core.protocols.runtime import ChannelSpec, Span
from rlinf_core.runtime.baton import Cancelled, Dropped
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.link import Link, Memory, Parcel
from rlinf_core.runtime.timer import Timer
from rlinf_core.runtime.verbs import Verb


class Client:
    """Speaks to the switchboard for one process.

    Args:
        name: ``group[rank]`` or "driver".
        connection: the socket to the switchboard.
        memory: this process's shared memory.
    """

    def __init__(self, name: str, connection: Connection, memory: Memory) -> None:
        self.name, self._connection, self._memory = name, connection, memory
        self._link = Link(connection, memory)
        self._spans: list[Span] = []
        self._numbers: dict[str, int] = {}  # of channels, as the switchboard knows them from here
        self._resident = self._asked_to_leave = self._away = False
        self._in_lease = 0
        self.offload: Callable[[], None] = lambda: None

    # --- channels --------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        spec: ChannelSpec,
        item: Any,
        key: Any,
        weight: float,
        version: int | None,
    ) -> None:
        """Add an item to a channel, waiting for room."""
        hash(key)  # or a TypeError here and not in the switchboard
        with self.span("transfer", name):
            parcel = self._memory.pack(item)
        try:
            with self.span("wait", name):
                number = self._number(name, spec)
                self._ask((Verb.PUT, number, parcel, key, weight, version), [parcel])
        except (ChannelClosed, ProducerGone, Dropped):  # it was refused
            self._memory.discard(parcel)
            raise

    def get(
        self, name: str, spec: ChannelSpec, key: Any, weight: float | None, version: int | None
    ) -> list[Any]:
        """Take one item, or items by weight, waiting for them."""
        hash(key)
        with self.span("wait", name):
            (parcels,) = self._ask((Verb.GET, self._number(name, spec), key, weight, version))
        with self.span("transfer", name):
            return [self._memory.unpack(parcel) for parcel in parcels]

    def close_channel(self, name: str, spec: ChannelSpec) -> None:
        """End a stream."""
        self._ask((Verb.CLOSE, self._number(name, spec)))

    def _number(self, name: str, spec: ChannelSpec) -> int:
        """Return a channel's number, naming it the first time: what it is travels only once."""
        if name not in self._numbers:
            self._send((Verb.NAME, name, spec))
            self._numbers[name] = len(self._numbers)
        return self._numbers[name]

    # --- leases ----------------------------------------------------------------------------------

    @contextmanager
    def lease(
        self, devices: Sequence[int], order: int, onload: Callable[[], None]
    ) -> Iterator[None]:
        """Hold devices; see :class:`rlinf_core.runtime.lease.Leases`."""
        if not self._in_lease:
            self.obey()
            if not self._resident:
                with self.span("wait", "device"):
                    self._ask((Verb.ENTER, tuple(devices), order))
                self._resident = True
                if self._away:
                    with self.span("switch", "onload"):
                        onload()
                    self._away = False
        self._in_lease += 1
        try:
            yield
        finally:
            self._in_lease -= 1
        self.obey()

    def obey(self) -> None:
        """Leave the devices if that was asked for meanwhile."""
        if self._in_lease:
            return
        if self._asked_to_leave:
            self._go()
        while self._connection.wait(0):
            self._hear()

    # --- within ----------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._connection.fileno()

    def span(self, kind: str, name: str) -> Timer:
        """Time a block."""
        return Timer(self._spans, self.name, kind, name)

    def spans(self) -> list[Span]:
        """Return the spans since the last call, and forget them."""
        taken, self._spans[:] = list(self._spans), []
        return taken

    def wait(self, seconds: float) -> bool:
        """Return whether an answer comes within ``seconds``."""
        return self._connection.wait(seconds)

    def resume(self) -> None:
        """Say that what is asked for from here on belongs to no call that was ended."""
        self._send((Verb.RESUME,))

    def leave(self) -> None:
        """Say that this process is about to end, and that it is no failure."""
        with suppress(Cancelled):
            self._send((Verb.BYE,))
        self._connection.close()

    def _ask(self, message: object, parcels: Sequence[Parcel] = ()) -> Sequence[Any]:
        if self._asked_to_leave:  # within a lease that has ended since
            self.obey()
        self._send(message, parcels)
        while (answer := self._hear()) is None:
            pass
        verb, *content = answer
        if verb is Verb.FAILED:
            raise content[0]
        if verb is Verb.CANCELLED:
            raise Cancelled
        if verb is Verb.DROPPED:
            raise Dropped
        return tuple(content)

    def _hear(self) -> Any:
        """Return the next answer; None where it was the wish that the devices be left."""
        self._attend()
        try:
            message = self._link.receive()
        except (EOFError, OSError):
            raise Cancelled from None  # the switchboard is gone, with the driver or alone
        if message[0] is not Verb.LEAVE:
            return message
        self._asked_to_leave = True
        if not self._in_lease:
            self._go()
        return None

    def _attend(self) -> None:
        """Wait for the next message, for whoever has more to wait for than that."""

    def _go(self) -> None:
        with self.span("switch", "offload"):
            self.offload()
        self._away = True
        self._resident = self._asked_to_leave = False
        self._send((Verb.LEFT,))

    def _send(self, message: object, parcels: Sequence[Parcel] = ()) -> None:
        try:
            self._link.send(message, parcels)
        except OSError:
            raise Cancelled from None


_clients: list[Callable[[], Client]] = []
"""How to get the client of this process, the newest last; channels that come along attach to it."""


def use(client: Callable[[], Client]) -> None:
    """Make a client the one of this process."""
    _clients.append(client)


def forget(client: Callable[[], Client]) -> None:
    """Take back what :func:`use` did."""
    with suppress(ValueError):
        _clients.remove(client)


class ProcessChannel:
    """A channel of the ``processes`` runtime, wherever it is held.

    Args:
        name: of the channel.
        spec: how it behaves.
        client: speaks for the process that holds it.
    """

    def __init__(self, name: str, spec: ChannelSpec, client: Callable[[], Client]) -> None:
        self.name, self._spec, self._client = name, spec, client

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, waiting while the channel is full."""
        self._client().put(self.name, self._spec, item, key, weight, version)

    def get(self, key: Any = None, version: int | None = None) -> Any:
        """Return the next item of ``key``, waiting for it."""
        return self._client().get(self.name, self._spec, key, None, version)[0]

    def get_batch(self, weight: float, key: Any = None, version: int | None = None) -> list[Any]:
        """Return items until their weights add up to ``weight``."""
        return self._client().get(self.name, self._spec, key, weight, version)

    def close(self) -> None:
        """End the stream; what is in it can still be read."""
        self._client().close_channel(self.name, self._spec)

    def __reduce__(self) -> Any:
        return _attach, (self.name, self._spec)


def _attach(name: str, spec: ChannelSpec) -> ProcessChannel:
    return ProcessChannel(name, spec, _clients[-1])
