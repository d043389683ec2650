"""Switchboard: the process that keeps all channels and leases of the ``processes`` runtime.

It reads no item and uses no torch: a channel holds parcels, and memory passes by as file
descriptors. Every worker, and the driver, has one link to it. A request that cannot be answered yet
is parked; after each message whatever can now be answered is. One thread, no locks: what happens
to a channel happens in one order.

Messages to it are those of ``verbs.py``.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rlinf_core.errors import RuntimeFailure
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import ChannelSpec
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.dequeue import Fifo
from rlinf_core.runtime.lease import Leases
from rlinf_core.runtime.limits import raise_open_files, show_name
from rlinf_core.runtime.link import Link, Parcel, Registry
from rlinf_core.runtime.queue import ItemQueue, Request
from rlinf_core.runtime.verbs import UNANSWERED, Verb, Waiting


@dataclass(eq=False)
class _Client:
    name: str
    link: Link
    order: int
    channels: list[tuple[str, ChannelSpec]] = field(default_factory=list)
    wrote: set[str] = field(default_factory=set)
    leaves: bool = False
    dropped: bool = False  # whether what it asks for still belongs to a call that a RESET ended
    spoke: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Put:
    client: _Client
    parcel: Parcel
    key: Any
    weight: float
    version: int | None


class _Channel:
    """A queue, and who waits for it."""

    def __init__(self, name: str, spec: ChannelSpec, drop: Callable[[Parcel], None]) -> None:
        policy = resolve_ref(spec.policy)() if spec.policy is not None else Fifo()
        self.queue = ItemQueue(name, spec, policy, drop)
        self.puts: deque[_Put] = deque()
        self.gets: list[tuple[_Client, Request]] = []


def serve(connection: Connection, arguments: object, fds: Sequence[int]) -> None:
    """Run the switchboard until the driver goes away. ``connection`` is the driver's."""
    raise_open_files()
    show_name("switchboard")
    Switchboard(connection).run()


class Switchboard:
    """All channels and leases; see the module."""

    def __init__(self, driver: Connection) -> None:
        self._driver, self._segments = driver, Registry()
        self._selector = selectors.DefaultSelector()
        self._clients: dict[str, _Client] = {}
        self._channels: dict[str, _Channel] = {}
        self._leases = Leases()
        self._entering: set[_Client] = set()  # who waits for a lease
        self._cancelled = False
        self._orders: dict[Verb, Callable[..., None]] = {
            Verb.JOIN: self._join,
            Verb.CANCEL: self._cancel,
            Verb.RESET: self._reset,
            Verb.WAITING: self._tell_who_waits,
        }
        self._verbs: dict[Verb, Callable[..., None]] = {
            Verb.NAME: self._name,
            Verb.PUT: self._put,
            Verb.GET: self._get,
            Verb.WITHDRAW: self._withdraw,
            Verb.CLOSE: self._close,
            Verb.ENTER: self._enter,
            Verb.LEFT: self._left,
            Verb.BYE: self._bye,
            Verb.RESUME: self._resume,
        }

    def run(self) -> None:
        """Answer until the driver's end is closed."""
        self._selector.register(self._driver, selectors.EVENT_READ, None)
        while True:
            for ready, _ in self._selector.select():
                if ready.data is not None:
                    self._hear(ready.data)
                elif not self._obey():
                    return

    # --- the driver ------------------------------------------------------------------------------

    def _obey(self) -> bool:
        try:
            verb, *rest = self._driver.receive()
        except EOFError:
            return False
        self._orders[verb](*rest)
        return True

    def _join(self, name: str) -> None:
        end = Connection(socket.socket(fileno=self._driver.fds.pop()))
        client = _Client(name, Link(end, self._segments), len(self._clients))
        self._clients[name] = client
        self._selector.register(end, selectors.EVENT_READ, client)

    def _waits(self) -> dict[_Client, str]:
        """Return who waits, and for what."""
        found = dict.fromkeys(self._entering, "a device")
        for name, channel in self._channels.items():
            found |= {put.client: f"room in {name!r}" for put in channel.puts}
            for client, request in channel.gets:
                key = "" if request.key is None else f" for {request.key!r}"
                found[client] = f"an item in {name!r}{key}"
        return found

    def _tell_who_waits(self) -> None:
        waits = self._waits()
        who = {c.name: Waiting(waits.get(c, ""), c.spoke) for c in self._clients.values()}
        self._driver.send((Verb.WAITING, who))

    def _cancel(self) -> None:
        self._cancelled = True
        waiting = self._waits()
        self._channels = {}
        for client in waiting:
            self._answer(client, Verb.CANCELLED)

    def _reset(self, gone: Sequence[str]) -> None:
        """Empty every channel and end every wait; whoever is at something is yet to hear of it."""
        waiting = self._waits()
        for channel in self._channels.values():
            channel.queue.clear()  # what had no room yet is freed by whoever put it
        for client in self._entering:
            self._leases.withdraw(client)
        self._channels, self._entering = {}, set()
        for client in self._clients.values():
            client.dropped, client.wrote = True, set()
        for client in waiting:
            self._answer(client, Verb.DROPPED)
        self._segments.forget(gone)
        self._driver.send((Verb.RESET,))

    # --- clients ---------------------------------------------------------------------------------

    def _hear(self, client: _Client) -> None:
        try:
            verb, *rest = client.link.receive()
        except (EOFError, OSError):
            self._lose(client)
            return
        client.spoke = time.monotonic()
        if (self._cancelled or client.dropped) and verb not in UNANSWERED:
            self._answer(client, Verb.CANCELLED if self._cancelled else Verb.DROPPED)
            return
        try:
            self._verbs[verb](client, *rest)
        except RuntimeFailure as error:
            self._answer(client, Verb.FAILED, error)

    def _lose(self, client: _Client) -> None:
        """A worker is gone: whoever waits for what it would have written is told."""
        self._selector.unregister(client.link.connection)
        client.link.connection.close()
        if self._clients[client.name] is client:  # else it has come back already
            del self._clients[client.name]
        self._leases.forget(client)
        self._entering.discard(client)
        for name, channel in self._channels.items():
            for put in [put for put in channel.puts if put.client is client]:
                channel.puts.remove(put)
                self._segments.free(put.parcel)
            for asker, request in channel.gets:
                if asker is client:
                    channel.queue.withdraw(request)
            channel.gets = [get for get in channel.gets if get[0] is not client]
            if name in client.wrote and not client.leaves:
                channel.queue.lose(f"{client.name}, which wrote to it, is gone")
            self._progress(channel)
        self._move_leases()

    def _bye(self, client: _Client) -> None:
        client.leaves = True

    def _resume(self, client: _Client) -> None:
        client.dropped = False

    # --- channels --------------------------------------------------------------------------------

    def _name(self, client: _Client, name: str, spec: ChannelSpec) -> None:
        client.channels.append((name, spec))

    def _channel(self, client: _Client, number: int) -> _Channel:
        name, spec = client.channels[number]
        if name not in self._channels:
            self._channels[name] = _Channel(name, spec, self._segments.free)
        return self._channels[name]

    def _put(
        self,
        client: _Client,
        number: int,
        parcel: Parcel,
        key: Any,
        weight: float,
        version: int | None,
    ) -> None:
        client.wrote.add(client.channels[number][0])
        channel = self._channel(client, number)
        channel.puts.append(_Put(client, parcel, key, weight, version))
        self._progress(channel)

    def _get(
        self,
        client: _Client,
        number: int,
        key: Any,
        weight: float | None,
        version: int | None,
    ) -> None:
        channel = self._channel(client, number)
        channel.queue.announce(version)
        channel.gets.append((client, channel.queue.ask(client.name, key, weight)))
        self._progress(channel)

    def _withdraw(self, client: _Client) -> None:
        for channel in self._channels.values():
            for get in [get for get in channel.gets if get[0] is client]:
                channel.gets.remove(get)
                self._answer(client, Verb.FAILED, channel.queue.time_out(get[1]))

    def _close(self, client: _Client, number: int) -> None:
        channel = self._channel(client, number)
        channel.queue.close()
        self._answer(client, Verb.DONE)
        self._progress(channel)

    def _progress(self, channel: _Channel) -> None:
        """Let in what there is room for, and hand out what was asked for; readers first."""
        moved = True
        while moved:
            moved = self._hand_out(channel)
            for put in list(channel.puts):
                if channel.queue.room(put.key):
                    channel.puts.remove(put)
                    self._let_in(channel, put)
                    moved = True

    def _hand_out(self, channel: _Channel) -> bool:
        """Deliver what has been settled; return whether anything was."""
        settled = [get for get in channel.gets if get[1].settled]
        for get in settled:
            channel.gets.remove(get)
            self._deliver(*get)
        return bool(settled)

    def _deliver(self, client: _Client, request: Request) -> None:
        if request.error is not None:
            self._answer(client, Verb.FAILED, request.error)
        else:
            parcels = request.result()
            self._answer(client, Verb.ITEMS, parcels, parcels=parcels)

    def _let_in(self, channel: _Channel, put: _Put) -> None:
        try:
            channel.queue.put(put.parcel, put.key, put.weight, put.version)
        except RuntimeFailure as error:
            self._answer(put.client, Verb.FAILED, error)
        else:
            self._hand_out(channel)  # a reader waits longer for it than the writer for its answer
            self._answer(put.client, Verb.DONE, channel.queue.room(put.key))

    # --- leases ----------------------------------------------------------------------------------

    def _enter(self, client: _Client, devices: Sequence[int], order: int) -> None:
        self._entering.add(client)
        self._leases.ask(client, devices, order)
        self._move_leases()

    def _left(self, client: _Client) -> None:
        self._leases.left(client)
        self._move_leases()

    def _move_leases(self) -> None:
        granted, leaving = self._leases.advance()
        for client in cast("list[_Client]", granted):  # first: who is let in may have to leave
            self._entering.discard(client)
            self._answer(client, Verb.DONE)
        for client in cast("list[_Client]", leaving):
            self._answer(client, Verb.LEAVE)

    # --- within ----------------------------------------------------------------------------------

    def _answer(
        self, client: _Client, verb: Verb, *content: Any, parcels: Sequence[Parcel] = ()
    ) -> None:
        with contextlib.suppress(OSError):  # it is gone, which shows at its end of the link
            client.link.send((verb, *content), parcels)
