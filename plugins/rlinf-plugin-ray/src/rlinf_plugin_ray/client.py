"""A worker's end of the board: channels and leases.

One request is under way at a time. A worker that takes turns holds a lock while it computes and
lets go of it while it waits; whoever has it may offload the worker, but never within a lease: then
the worker does so itself, when the lease ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rlinf_core.api import ChannelSpec, ProducerGone, RuntimeFailure, Span, toolkit
from rlinf_plugin_ray.board import CANCELLED, FAILED
from rlinf_plugin_ray.parcels import unwrap, wrap


class Cancelled(BaseException):
    """Raised where a worker waits, when what it is at has to end."""


class Client:
    """Speaks to the board for one process.

    Args:
        name: ``group[rank]`` or "driver".
        board: the actor.
        key: by which channels that travel find the client of the process they come to.
    """

    def __init__(self, name: str, board: Any, key: str) -> None:
        self.name, self.board, self.key = name, board, key
        self.epoch = 0
        self.busy = threading.Lock()
        self.offload: Callable[[], None] = lambda: None
        self._spans: list[Span] = []
        self._resident = self._asked_to_leave = self._away = False
        self._in_lease = 0
        _clients[key] = self

    def spans(self) -> list[Span]:
        """Return the spans since the last time."""
        taken, self._spans = self._spans, []
        return taken

    def span(self, kind: str, name: str) -> toolkit.Timer:
        """Time a block."""
        return toolkit.Timer(self._spans, self.name, kind, name)

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
        hash(key)  # or a TypeError here and not on the board
        with self.span("transfer", name):
            parcel = wrap(item)
        with self.span("wait", name):
            self._ask("put", name, spec, parcel, key, weight, version)

    def get(
        self,
        name: str,
        spec: ChannelSpec,
        key: Any,
        weight: float | None,
        version: int | None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Take one item, or items by weight, waiting for them."""
        hash(key)
        with self.span("wait", name):
            (parcels,) = self._ask("get", name, spec, key, weight, version, timeout)
        with self.span("transfer", name):
            try:
                return [unwrap(parcel) for parcel in parcels]
            except RayError as error:  # memory of Ray's goes with whoever made it
                text = f"an item of the channel {name!r} is lost with the worker that wrote it"
                raise ProducerGone(f"{text}: {type(error).__name__}") from None

    def close_channel(self, name: str, spec: ChannelSpec) -> None:
        """End a stream."""
        self._ask("close", name, spec)

    # --- leases ----------------------------------------------------------------------------------

    @contextmanager
    def lease(
        self, devices: Sequence[int], order: int, onload: Callable[[], None]
    ) -> Iterator[None]:
        """Hold devices; the calling thread has :attr:`busy`."""
        if not self._in_lease:
            self._obey()
            if not self._resident:
                with self.span("wait", "device"):
                    self._ask("enter", tuple(devices), order)
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
        self._obey()

    def leave(self) -> None:
        """Leave the devices: now if the worker waits or is idle, else when its lease has ended."""
        # Also where the worker has yet to hear that it was let in: its lease comes first, then.
        self._asked_to_leave = True
        with self.busy:
            self._obey()

    def _obey(self) -> None:
        if not (self._asked_to_leave and self._resident) or self._in_lease:
            return
        with self.span("switch", "offload"):
            self.offload()
        self._away = True
        self._resident = self._asked_to_leave = False
        self._answer(self.board.left.remote(self.name))

    # --- within ----------------------------------------------------------------------------------

    def _ask(self, verb: str, *content: Any) -> Sequence[Any]:
        ref = getattr(self.board, verb).remote(self.name, self.epoch, *content)
        if self._in_lease:
            kind, *answer = self._answer(ref)
        else:
            kind, *answer = self._idly(ref)
        if kind == FAILED:
            raise answer[0]
        if kind == CANCELLED:
            raise Cancelled
        return answer

    def _idly(self, ref: ray.ObjectRef) -> Any:
        self.busy.release()
        try:
            return self._answer(ref)
        finally:
            self.busy.acquire()

    def _answer(self, ref: ray.ObjectRef) -> Any:
        try:
            return ray.get(ref)
        except RayTaskError as error:
            raise RuntimeFailure(f"the board, which keeps channels and leases: {error}") from None
        except RayError:
            raise Cancelled from None  # the board is gone, with the driver or alone


_clients: dict[str, Client] = {}
"""The clients of this process; a worker's has one, a driver's one for each of its runtimes."""


def forget(client: Client) -> None:
    """Take note that a client's runtime is closed."""
    _clients.pop(client.key, None)


class RayChannel:
    """A channel, wherever it is held.

    Args:
        name: of the channel.
        spec: how it behaves.
        client: speaks for the process that holds it.
    """

    def __init__(self, name: str, spec: ChannelSpec, client: Client) -> None:
        self.name, self._spec, self._client = name, spec, client

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, waiting while the channel is full."""
        self._client.put(self.name, self._spec, item, key, weight, version)

    def get(self, key: Any = None, version: int | None = None, timeout: float | None = None) -> Any:
        """Return the next item of ``key``, waiting for it."""
        return self._client.get(self.name, self._spec, key, None, version, timeout)[0]

    def get_batch(self, weight: float, key: Any = None, version: int | None = None) -> list[Any]:
        """Return items until their weights add up to ``weight``."""
        return self._client.get(self.name, self._spec, key, weight, version)

    def close(self) -> None:
        """End the stream; what is in it can still be read."""
        self._client.close_channel(self.name, self._spec)

    def __reduce__(self) -> Any:
        return _attach, (self.name, self._spec, self._client.key)


def _attach(name: str, spec: ChannelSpec, key: str) -> RayChannel:
    if key not in _clients:
        raise RuntimeFailure(f"the channel {name!r} belongs to a runtime that is closed")
    return RayChannel(name, spec, _clients[key])
