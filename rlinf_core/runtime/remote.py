"""What the driver holds of workers in other processes: groups, and calls under way.

Nothing here waits by itself: :class:`rlinf_core.runtime.processes.ProcessRuntime` listens to every
process at once, and hands each message to the handle that it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_core.errors import ProducerGone, RuntimeFailure, WorkerDied, WorkerFailed
from rlinf_core.protocols.runtime import WorkerSpec
from rlinf_core.runtime.link import Link, Parcel
from rlinf_core.runtime.logs import WorkerLog
from rlinf_core.runtime.process import Assignment
from rlinf_core.runtime.zygote import Child, ChildGone

if TYPE_CHECKING:
    from rlinf_core.runtime.processes import ProcessRuntime


_LAST_WORDS = 0.3  # seconds to wait for what a worker that failed wrote last


class RemoteTraceback(Exception):
    """The traceback of an error, as text, from the process in which it was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ProcessFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: ProcessRuntime, size: int) -> None:
        self._runtime, self._era = runtime, runtime.era
        self._results: list[Any] = [None] * size
        self._seconds = [0.0] * size
        self.left = 0
        self.failed = False  # whether one of those that were called has

    def done(self) -> bool:
        """Return whether every rank has finished, or one that was called has failed."""
        self._runtime.hear(0.0)
        return self.left == 0 or self.failed

    def wait(self) -> list[Any]:
        """Wait until every rank has finished; raise the first failure of any worker before."""
        while self.left and self._runtime.failure is None and self._lives:
            self._runtime.hear(None)
        if self.left or not self._lives:  # what came whole counts, whoever has failed since
            self._runtime.raise_failure()
            raise RuntimeFailure("the call was ended when a failed worker was made anew")
        return self._results

    @property
    def _lives(self) -> bool:
        return self._era == self._runtime.era

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
            while not self.done() and self._runtime.failure is None and self._lives:
                news.clear()
                with contextlib.suppress(TimeoutError):  # to look whether anybody hangs
                    await asyncio.wait_for(news.wait(), 1.0)
        return self.wait()


class Remote:
    """The driver's handle of one worker.

    Attributes:
        failure: why it is no more; None while it lives.
        since: when it began what it is at, in seconds of the monotonic clock.
        made: whether it has said that it was made.
        dropping: whether it has yet to say that it obeyed a drop.
    """

    def __init__(
        self, runtime: ProcessRuntime, assignment: Assignment, child: Child, log: WorkerLog
    ) -> None:
        self.runtime, self.assignment, self.child, self.log = runtime, assignment, child, log
        self.place, self.name = assignment.place, assignment.name
        self.failure: WorkerFailed | None = None
        self.since = time.monotonic()
        self.made, self.dropping = False, False
        self._link = Link(child, runtime.memory)
        self._calls: deque[tuple[str, ProcessFuture]] = deque()

    # --- what it is at ---------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether it has something to do."""
        return self.failure is None and (not self.made or bool(self._calls) or self.dropping)

    @property
    def method(self) -> str:
        """What it is at: "start", a method, or "idle"."""
        if not self.made:
            return "start"
        return self._calls[0][0] if self._calls else "idle"

    @property
    def limit(self) -> float:
        """How many seconds it may take for that."""
        deadlines = self.assignment.spec.deadlines
        if not self.made:
            return deadlines.start
        if not self._calls:
            return self.runtime.patience
        return deadlines.methods.get(self.method, deadlines.call)

    # --- telling it ------------------------------------------------------------------------------

    def call(self, future: ProcessFuture, method: str, work: object) -> None:
        """Send a call."""
        parcel = self.runtime.memory.pack(work)
        self._wait_for_room()
        if self.made and not self._calls:
            self.since = time.monotonic()
        self._calls.append((method, future))
        future.left += 1
        self._send(("call", method, parcel), [parcel])

    def drop(self, gone: Sequence[str]) -> None:
        """End what it is at, as soon as it can be, and what it has yet to begin."""
        self._wait_for_room()
        if not self.busy:
            self.since = time.monotonic()
        self.dropping = True
        self._send(("drop", gone))

    def end(self) -> None:
        """Ask it to close."""
        if self.failure is None and self.child.writable():  # else it is busy: it has to be killed
            self._send(("end",))

    def _wait_for_room(self) -> None:
        # Calls that the worker has yet to read fill the socket, and so may results that the driver
        # has yet to hear: neither end may wait for the other without listening.
        while self.failure is None and not self.child.writable():
            self.runtime.hear(0.01)

    def _send(self, message: object, parcels: Sequence[Parcel] = ()) -> None:
        with contextlib.suppress(OSError):  # it is gone; its last words are yet to be heard
            self._link.send(message, parcels)

    # --- hearing of it ---------------------------------------------------------------------------

    def hear(self) -> None:
        """Take the message that has come."""
        try:
            if not self.child.started:
                _ = self.child.pid  # the first thing that a child says
                return
            self._take(*self._link.receive())
        except ChildGone as error:  # quietly, where the switchboard is gone too
            self.fail(WorkerDied(error.how), follows=self.child.exit_status() == 0)
        except Exception as error:  # it could not start, or what it sent cannot be read here
            self.fail(error)

    def _take(self, kind: str, *content: Any) -> None:
        if kind == "failed":
            method, cause, text = content
            cause.__cause__ = RemoteTraceback(text)
            if isinstance(cause, ProducerGone):  # it lives; somebody else is to blame
                if not self.dropping:
                    self.runtime.give_up(self._failed(cause, method, 0.0), follows=True)
            else:
                self.fail(cause, method)
            return
        if kind == "result":
            seconds, parcel = content
            result, spans = self.runtime.memory.unpack(parcel)
            self.runtime.keep(spans)
            _, future = self._calls.popleft()
            future.resolve(self.place.rank, result, seconds)
        elif kind == "dropped":
            self.dropping = False
            self._calls.clear()
        else:
            self.made = True
        self.since = time.monotonic()

    def fail(self, error: BaseException, method: str = "", follows: bool = False) -> None:
        """Take note that it is no more."""
        self.failure = self._failed(error, method, _LAST_WORDS)
        for _, future in self._calls:
            future.failed = True
        self.runtime.fail(self.child, self.failure, follows)

    def _failed(self, error: BaseException, method: str, wait: float) -> WorkerFailed:
        place, log = self.place, self.log.tail(wait)
        return WorkerFailed(place.group, place.rank, method or self.method, error, log)


class ProcessGroup:
    """Handles of the workers of one group."""

    def __init__(
        self, runtime: ProcessRuntime, spec: WorkerSpec, workers: Sequence[Remote]
    ) -> None:
        self._runtime, self.spec, self.name, self.size = runtime, spec, spec.name, len(workers)
        self.workers = list(workers)
        self.restarts = spec.restarts

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> ProcessFuture:
        """Send a call to all ranks, or some, and return at once."""
        self._runtime.raise_failure()
        future = ProcessFuture(self._runtime, self.size)
        for rank in range(self.size) if ranks is None else sorted(set(ranks)):
            self.workers[rank].call(future, method, (args, kwargs))
        return future
