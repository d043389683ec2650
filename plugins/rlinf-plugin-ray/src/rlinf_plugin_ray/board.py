"""The board: one actor that keeps all channels and leases of a run.

It reads no item and uses no torch: a channel holds parcels. A request that cannot be answered yet
is parked, as a coroutine; after each request whatever can now be answered is. Between two ``await``
no other request is at work, so what happens to a channel happens in one order.

Every request names its client, ``group[rank]`` or "driver", and the *epoch* that it belongs to:
when workers are made anew, a new epoch begins, and what is asked in an older one is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlinf_core.api import ChannelSpec, RuntimeFailure, toolkit
from rlinf_plugin_ray.parcels import Parcel

DONE, ITEMS, FAILED, CANCELLED = "done", "items", "failed", "cancelled"
"""What an answer begins with; after ITEMS come parcels, after FAILED the error."""

Answer = tuple[Any, ...]


@dataclass(eq=False)
class _Put:
    client: str
    parcel: Parcel
    key: Any
    weight: float
    version: int | None
    answer: asyncio.Future[Answer]


@dataclass(eq=False)
class _Get:
    client: str
    request: toolkit.Request
    answer: asyncio.Future[Answer]


class _Channel:
    """A queue, and who waits for it."""

    def __init__(self, name: str, spec: ChannelSpec) -> None:
        policy = toolkit.Fifo() if spec.policy is None else toolkit.resolve_ref(spec.policy)()
        self.queue = toolkit.ItemQueue(name, spec, policy)
        self.puts: deque[_Put] = deque()
        self.gets: list[_Get] = []
        self.writers: set[str] = set()

    def progress(self) -> None:
        """Let in what there is room for, and hand out what was asked for; readers first."""
        moved = True
        while moved:
            moved = self._hand_out()
            for put in [put for put in self.puts if self.queue.room(put.key)]:
                if self.queue.room(put.key):  # still: one before it may have taken the last
                    self.puts.remove(put)
                    self._let_in(put)
                    moved = True

    def _hand_out(self) -> bool:
        settled = [get for get in self.gets if get.request.settled]
        for get in settled:
            self.gets.remove(get)
            error = get.request.error
            _tell(get.answer, *((FAILED, error) if error else (ITEMS, get.request.result())))
        return bool(settled)

    def _let_in(self, put: _Put) -> None:
        try:
            self.queue.put(put.parcel, put.key, put.weight, put.version)
        except RuntimeFailure as error:
            _tell(put.answer, FAILED, error)
        else:
            self._hand_out()  # a reader waits longer for it than the writer for its answer
            _tell(put.answer, DONE)

    def forget(self, client: str) -> None:
        """Drop what a client waits for."""
        for put in [put for put in self.puts if put.client == client]:
            self.puts.remove(put)
            _tell(put.answer, CANCELLED)
        for get in [get for get in self.gets if get.client == client]:
            self.gets.remove(get)
            self.queue.withdraw(get.request)
            _tell(get.answer, CANCELLED)

    def cancel(self) -> None:
        """Tell everybody that what they wait for will not come."""
        for waiting in [*self.puts, *self.gets]:
            _tell(waiting.answer, CANCELLED)


class Board:
    """All channels and leases; see the module. Each public method is a call of the actor."""

    def __init__(self) -> None:
        self._epoch = 0
        self._channels: dict[str, _Channel] = {}
        self._leases = toolkit.Leases()
        self._entering: dict[str, asyncio.Future[Answer]] = {}
        self._tenants: dict[str, Any] = {}  # the actors of workers that take turns

    # --- channels --------------------------------------------------------------------------------

    async def put(
        self,
        client: str,
        epoch: int,
        name: str,
        spec: ChannelSpec,
        parcel: Parcel,
        key: Any,
        weight: float,
        version: int | None,
    ) -> Answer:
        """Add an item, when there is room."""
        if epoch != self._epoch:
            return (CANCELLED,)
        channel = self._channel(name, spec)
        channel.writers.add(client)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        channel.puts.append(_Put(client, parcel, key, weight, version, answer))
        channel.progress()
        return await answer

    async def get(
        self,
        client: str,
        epoch: int,
        name: str,
        spec: ChannelSpec,
        key: Any,
        weight: float | None,
        version: int | None,
        timeout: float | None,
    ) -> Answer:
        """Return an item, or items by weight, when they are there; or an error, when it is late."""
        if epoch != self._epoch:
            return (CANCELLED,)
        channel = self._channel(name, spec)
        channel.queue.announce(version)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting = _Get(client, channel.queue.ask(client, key, weight), answer)
        channel.gets.append(waiting)
        channel.progress()
        await asyncio.wait([answer], timeout=timeout)
        if not answer.done():
            channel.gets.remove(waiting)
            _tell(answer, FAILED, channel.queue.time_out(waiting.request))
        return answer.result()

    async def close(self, client: str, epoch: int, name: str, spec: ChannelSpec) -> Answer:
        """End a stream."""
        if epoch != self._epoch:
            return (CANCELLED,)
        channel = self._channel(name, spec)
        channel.queue.close()
        channel.progress()
        return (DONE,)

    def _channel(self, name: str, spec: ChannelSpec) -> _Channel:
        if name not in self._channels:
            self._channels[name] = _Channel(name, spec)
        return self._channels[name]

    # --- leases ----------------------------------------------------------------------------------

    async def join(self, client: str, actor: Any) -> None:
        """Take note of a worker that takes turns, to ask it to leave its devices."""
        self._tenants[client] = actor

    async def enter(self, client: str, epoch: int, devices: Sequence[int], order: int) -> Answer:
        """Give devices to a worker, when they are free."""
        if epoch != self._epoch:
            return (CANCELLED,)
        answer = self._entering[client] = asyncio.get_running_loop().create_future()
        self._leases.ask(client, devices, order)
        self._move_leases()
        return await answer

    async def left(self, client: str) -> None:
        """Take note that a worker has left its devices."""
        self._leases.left(client)
        self._move_leases()

    def _move_leases(self) -> None:
        granted, leaving = self._leases.advance()
        for client in granted:  # first: who is let in may have to leave at once
            _tell(self._entering.pop(str(client)), DONE)
        for client in leaving:
            self._tenants[str(client)].leave.remote()

    # --- the driver ------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Never return: the call fails when the board is gone."""
        await asyncio.get_running_loop().create_future()

    async def waits(self) -> dict[str, str]:
        """Return who waits, and for what."""
        found = dict.fromkeys(self._entering, "a device")
        for name, channel in self._channels.items():
            found |= {put.client: f"room in {name!r}" for put in channel.puts}
            for get in channel.gets:
                key = "" if get.request.key is None else f" for {get.request.key!r}"
                found[get.client] = f"an item in {name!r}{key}"
        return found

    async def forget(self, client: str) -> None:
        """Drop what a client waits for; it has turned to something else."""
        for channel in self._channels.values():
            channel.forget(client)
            channel.progress()

    async def lose(self, client: str, why: str) -> None:
        """Take note that a worker is gone: whoever waits for what it would write is told."""
        await self.forget(client)
        for channel in self._channels.values():
            if client in channel.writers:
                channel.queue.lose(why)
                channel.progress()
        self._leases.forget(client)
        self._tenants.pop(client, None)
        if answer := self._entering.pop(client, None):
            _tell(answer, CANCELLED)
        self._move_leases()

    async def begin(self, epoch: int) -> None:
        """Begin an epoch: channels are empty and open, and nobody waits; who has devices stays."""
        self._epoch = epoch
        for channel in self._channels.values():
            channel.cancel()
        self._channels = {}
        for client, answer in self._entering.items():
            self._leases.withdraw(client)
            _tell(answer, CANCELLED)
        self._entering = {}
        self._move_leases()


def _tell(answer: asyncio.Future[Answer], *content: Any) -> None:
    if not answer.done():
        answer.set_result(content)
