"""The ``processes`` runtime: a process for every worker, joined by shared memory.

What the driver holds. Workers are forked from a zygote that has imported what the first group
needs; the switchboard, one more child of it, keeps channels and leases. ``process.py`` is what
runs in a worker, ``switchboard.py`` in the switchboard. All ends with the driver, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from rlinf_core.errors import RuntimeFailure, WorkerFailed
from rlinf_core.placement import GroupPlace
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec
from rlinf_core.runtime.client import Client, ProcessChannel, use
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.limits import processors
from rlinf_core.runtime.link import Link, Memory
from rlinf_core.runtime.process import Assignment
from rlinf_core.runtime.switchboard import Verb
from rlinf_core.runtime.timer import MOST_SPANS
from rlinf_core.runtime.worker import Place, places
from rlinf_core.runtime.zygote import Child, Zygote

_WORKER = "rlinf_core.runtime.process:serve"
_SWITCHBOARD = "rlinf_core.runtime.switchboard:serve"
_GRACE = 5.0  # seconds that workers get to close what they hold


class RemoteTraceback(Exception):
    """The traceback of an error, as text, from the process in which it was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ProcessFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: ProcessRuntime, size: int) -> None:
        self._runtime = runtime
        self._results: list[Any] = [None] * size
        self._seconds = [0.0] * size
        self.left = 0

    def done(self) -> bool:
        """Return whether every rank has finished."""
        self._runtime.hear(0.0)
        return self.left == 0

    def wait(self) -> list[Any]:
        """Wait until every rank has finished; raise the first failure of any worker."""
        while self.left and self._runtime.failure is None:
            self._runtime.hear(None)
        self._runtime.raise_failure()
        return self._results

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """Wait without holding up an event loop."""
        return self._finished().__await__()

    def durations(self) -> list[float]:
        """Return the seconds that each rank spent in the method."""
        return list(self._seconds)

    def resolve(self, rank: int, result: Any, seconds: float) -> None:
        """Take one rank's result."""
        self._results[rank], self._seconds[rank] = result, seconds
        self.left -= 1

    async def _finished(self) -> list[Any]:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._runtime.fileno(), changed.set)
        try:
            while not self.done() and self._runtime.failure is None:
                changed.clear()
                await changed.wait()
        finally:
            loop.remove_reader(self._runtime.fileno())
        return self.wait()


class _Remote:
    """The driver's handle of one worker."""

    def __init__(self, runtime: ProcessRuntime, assignment: Assignment, child: Child) -> None:
        self.runtime, self.place, self.name = runtime, assignment.place, assignment.name
        self.child, self._link = child, Link(child, runtime.memory)
        self._calls: deque[tuple[int, str, ProcessFuture]] = deque()
        self._count = 0

    def call(self, future: ProcessFuture, method: str, work: object) -> None:
        """Send a call."""
        self._count += 1
        self._calls.append((self._count, method, future))
        future.left += 1
        parcel = self.runtime.memory.pack(work)
        with contextlib.suppress(OSError):  # it is gone; its last words are yet to be heard
            self._link.send(("call", self._count, method, parcel), [parcel])

    def hear(self) -> None:
        """Take the message that has come."""
        try:
            if not self.child.started:
                _ = self.child.pid  # the first thing that a child says
                return
            message = self._link.receive()
        except RuntimeFailure as error:
            self.fail(error)
            return
        if message[0] == "failed":
            _, _, method, cause, text = message
            cause.__cause__ = RemoteTraceback(text)
            self.fail(cause, method)
            return
        _, _, seconds, parcel = message
        _, _, future = self._calls.popleft()
        result, spans = self.runtime.memory.unpack(parcel)
        self.runtime.keep(spans)
        future.resolve(self.place.rank, result, seconds)

    def fail(self, error: BaseException, method: str = "") -> None:
        """Take note that the worker can do no more."""
        method = method or (self._calls[0][1] if self._calls else "start")
        failure = WorkerFailed(self.place.group, self.place.rank, method, error)
        self.runtime.fail(self.child, failure)

    def end(self) -> None:
        """Ask it to close."""
        with contextlib.suppress(OSError):
            self._link.send(("end",))


class ProcessGroup:
    """Handles of the workers of one group."""

    def __init__(self, runtime: ProcessRuntime, name: str, workers: Sequence[_Remote]) -> None:
        self._runtime, self.name, self.size = runtime, name, len(workers)
        self.workers = list(workers)

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> ProcessFuture:
        """Send a call to all ranks, or some, and return at once."""
        self._runtime.raise_failure()
        future = ProcessFuture(self._runtime, self.size)
        for rank in range(self.size) if ranks is None else sorted(set(ranks)):
            self.workers[rank].call(future, method, (args, kwargs))
        return future


class ProcessRuntime:
    """A process per worker; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        config: it has no options.
    """

    def __init__(self, config: Any = None) -> None:
        self.memory = Memory("driver")
        self.failure: WorkerFailed | None = None
        self._zygote: Zygote | None = None
        self._board: Child | None = None
        self._client: Client | None = None
        self._groups: list[ProcessGroup] = []
        self._channels: dict[str, ProcessChannel] = {}
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._selector = selectors.DefaultSelector()
        self._wake, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._interrupted = self._closed = False

    # --- the protocol ----------------------------------------------------------------------------

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> ProcessGroup:
        """Fork the workers of a group, without waiting until they run."""
        zygote, board = self._started(spec)
        workers = []
        for place in places(spec.name, processes, placement):
            variables = placement[place.rank].environment if placement else {}
            workers.append(self._fork(zygote, board, spec, place, dict(variables)))
        group = ProcessGroup(self, spec.name, workers)
        self._groups.append(group)
        return group

    def channel(self, name: str, spec: ChannelSpec | None = None) -> ProcessChannel:
        """Return the channel of that name, making it where there is none."""
        if name not in self._channels:
            self._channels[name] = ProcessChannel(name, spec or ChannelSpec(), self._own_client)
        return self._channels[name]

    def spans(self) -> list[Span]:
        """Return the spans of calls that have ended since the last time."""
        taken = list(self._spans)
        self._spans.clear()
        return taken

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        self._interrupted = True
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """End every worker, the switchboard and the zygote; may be called twice."""
        if self._closed:
            return
        self._closed = True
        workers = [worker for group in self._groups for worker in group.workers][::-1]
        for worker in workers:
            worker.end()
        with contextlib.suppress(OSError, RuntimeFailure):
            if self._board is not None:
                self._board.send((Verb.CANCEL,))
            if self._client is not None:
                self._client.leave()
        deadline = time.monotonic() + _GRACE
        for child in [*(worker.child for worker in workers), self._board]:
            if child is not None:
                _end(child, deadline)
        if self._zygote is not None:
            self._zygote.close()
        self._selector.close()
        self._wake.close()
        self._bell.close()
        self.memory.close()

    # --- for futures and handles -----------------------------------------------------------------

    def hear(self, timeout: float | None) -> None:
        """Take the messages that have come, waiting for the first up to ``timeout`` seconds.

        Raises:
            KeyboardInterrupt: :meth:`interrupt` was called.
        """
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
        for ready, _ in self._selector.select(timeout):
            if ready.data is None:
                self._wake.recv(64)
                self._interrupted = False
                raise KeyboardInterrupt
            ready.data.hear()

    def keep(self, spans: Sequence[Span]) -> None:
        """Take the spans of a call."""
        self._spans += spans

    def fail(self, child: Child, failure: WorkerFailed) -> None:
        """Note the first failure, which every wait raises, and listen to that child no more."""
        self.failure = self.failure or failure
        self._selector.unregister(child)

    def raise_failure(self) -> None:
        """Raise the failure that was noted, if there is one."""
        if self.failure is not None:
            raise self.failure from self.failure.cause

    def fileno(self) -> int:
        """Return a descriptor that is readable when a message has come."""
        return self._selector.fileno()

    # --- within ----------------------------------------------------------------------------------

    def _started(self, spec: WorkerSpec) -> tuple[Zygote, Child]:
        if self._zygote is None or self._board is None:
            module = spec.target.partition(":")[0]
            self._zygote = Zygote(["torch", "rlinf_core.runtime.process", module])
            self._board = self._zygote.fork(_SWITCHBOARD)
        return self._zygote, self._board

    def _fork(
        self,
        zygote: Zygote,
        board: Child,
        spec: WorkerSpec,
        place: Place,
        environment: dict[str, str],
    ) -> _Remote:
        name = f"{place.group}[{place.rank}]"
        order = len(self._groups)
        assignment = Assignment(name, order, spec, place, environment, _threads())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            board.send((Verb.JOIN, name), [theirs.fileno()])
            child = zygote.fork(_WORKER, assignment, [ours.fileno()])
        remote = _Remote(self, assignment, child)
        self._selector.register(child, selectors.EVENT_READ, remote)
        return remote

    def _own_client(self) -> Client:
        """Return the driver's own client, made when it is first needed."""
        if self._client is None:
            if self._board is None:
                raise RuntimeFailure("a channel was used before any group was launched")
            ours, theirs = socket.socketpair()
            with theirs:
                self._board.send((Verb.JOIN, "driver"), [theirs.fileno()])
            self._client = Client("driver", Connection(ours), self.memory)
            use(self._client)
        return self._client


def _end(child: Child, deadline: float) -> None:
    """Wait for a child that was asked to end, and kill it where it does not."""
    with contextlib.suppress(RuntimeFailure):
        _ = child.pid  # without it nobody knows whom to kill
    child.end(max(deadline - time.monotonic(), 0.1))


def _threads() -> int:
    """Return how many threads torch would use in this process."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else processors()
