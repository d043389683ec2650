"""What the driver holds of workers in other processes: groups, calls under way, its own channels.

Nothing here waits by itself: :class:`rlinf_core.runtime.processes.ProcessRuntime` listens to every
process at once, and hands each message to the handle that it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_core.errors import ProducerGone, RuntimeFailure, WorkerFailed
from rlinf_core.runtime.baton import Cancelled
from rlinf_core.runtime.client import Client
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.link import Link, Parcel
from rlinf_core.runtime.process import Assignment
from rlinf_core.runtime.zygote import Child

if TYPE_CHECKING:
    from rlinf_core.runtime.processes import ProcessRuntime


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
        with self._runtime.news(asyncio.get_running_loop()) as news:
            while not self.done() and self._runtime.failure is None:
                news.clear()
                await news.wait()
        return self.wait()


class Remote:
    """The driver's handle of one worker."""

    def __init__(self, runtime: ProcessRuntime, assignment: Assignment, child: Child) -> None:
        self.runtime, self.place, self.child = runtime, assignment.place, child
        self._link = Link(child, runtime.memory)
        self._calls: deque[tuple[str, ProcessFuture]] = deque()
        self._answered = False  # whether any call has come back: it was made, then

    def call(self, future: ProcessFuture, method: str, work: object) -> None:
        """Send a call."""
        parcel = self.runtime.memory.pack(work)
        # Calls that the worker has yet to read fill the socket, and so may results that the driver
        # has yet to hear: neither end may wait for the other without listening.
        while not self.child.writable() and self.runtime.failure is None:
            self.runtime.hear(0.01)
        self._calls.append((method, future))
        future.left += 1
        with contextlib.suppress(OSError):  # it is gone; its last words are yet to be heard
            self._link.send(("call", method, parcel), [parcel])

    def hear(self) -> None:
        """Take the message that has come."""
        try:
            if not self.child.started:
                _ = self.child.pid  # the first thing that a child says
                return
            self._take(*self._link.receive())
        except RuntimeFailure as error:  # it is gone; quietly, where the switchboard is gone too
            self._fail(error, follows=self.child.exit_status() == 0)
        except Exception as error:  # what it sent cannot be read here
            self._fail(error)

    def end(self) -> None:
        """Ask it to close."""
        with contextlib.suppress(OSError):
            if self.child.writable():  # else it is busy, and has to be killed
                self._link.send(("end",))

    def _take(self, kind: str, *content: Any) -> None:
        if kind == "failed":
            method, cause, text = content
            cause.__cause__ = RemoteTraceback(text)
            self._fail(cause, method, follows=isinstance(cause, ProducerGone))
            return
        seconds, parcel = content
        result, spans = self.runtime.memory.unpack(parcel)
        self.runtime.keep(spans)
        _, future = self._calls.popleft()
        self._answered = True
        future.resolve(self.place.rank, result, seconds)

    def _fail(self, error: BaseException, method: str = "", follows: bool = False) -> None:
        if not method:
            idle = "idle" if self._answered else "start"
            running = self.child.started and self._calls
            method = self._calls[0][0] if running else idle
        failure = WorkerFailed(self.place.group, self.place.rank, method, error)
        self.runtime.fail(self.child, failure, follows)


class ProcessGroup:
    """Handles of the workers of one group."""

    def __init__(self, runtime: ProcessRuntime, name: str, workers: Sequence[Remote]) -> None:
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


class Board:
    """The driver's handle of the switchboard, which says nothing unless it fails."""

    def __init__(self, runtime: ProcessRuntime, child: Child) -> None:
        self._runtime, self._child = runtime, child

    def hear(self) -> None:
        """Take the message that has come."""
        try:
            _ = self._child.receive() if self._child.started else self._child.pid
        except RuntimeFailure as error:
            what = "the switchboard, the process that keeps channels and leases, is gone"
            # One that never started is not to blame: what keeps it from that keeps workers, too.
            follows = not self._child.started
            self._runtime.fail(self._child, RuntimeFailure(f"{what}: {error}"), follows)


class DriverClient(Client):
    """The driver's own end of the switchboard: it listens to the workers while it waits."""

    def __init__(self, runtime: ProcessRuntime, connection: Connection) -> None:
        super().__init__("driver", connection, runtime.memory)
        self._runtime = runtime

    def _ask(
        self, message: object, parcels: Sequence[Parcel] = (), timeout: float | None = None
    ) -> Sequence[Any]:
        try:
            return super()._ask(message, parcels, timeout)
        except Cancelled:
            self._runtime.why()
            raise RuntimeFailure("the runtime was closed meanwhile") from None

    def _attend(self, deadline: float | None) -> bool:
        return self._runtime.attend(self, deadline)
