"""The workers of the ``inline`` runtime, and the driver's handles of them; see ``inline.py``."""

from __future__ import annotations

import sys
import time
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_core.errors import Deadlock, ProducerGone, RuntimeFailure, WorkerFailed
from rlinf_core.protocols.runtime import Span, WorkerSpec
from rlinf_core.runtime.baton import Cancelled, Dropped, Strand
from rlinf_core.runtime.worker import Place, Worker, make_worker, public_method, take_notes

if TYPE_CHECKING:
    from rlinf_core.runtime.inline import InlineRuntime

_Task = tuple["InlineFuture", str, tuple[Any, ...], dict[str, Any]]


class InlineFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: InlineRuntime, what: str, size: int) -> None:
        self._runtime, self._what, self._era = runtime, what, runtime.era
        self._results: list[Any] = [None] * size
        self._seconds = [0.0] * size
        self.left = 0
        self.failed = False  # whether one of those that were called has

    def done(self) -> bool:
        """Return whether every rank has finished, or one that was called has failed."""
        return self.left == 0 or self.failed

    def wait(self) -> list[Any]:
        """Let workers run until every rank has finished; raise the first failure of any before."""
        runtime = self._runtime
        if self._era == runtime.era:
            runtime.baton.wait(lambda: self.done() or runtime.failure is not None, self._what)
        if self._era != runtime.era:
            raise RuntimeFailure("the call was ended when a failed worker was made anew")
        if self.left and runtime.failure is not None:
            if isinstance(runtime.failure.cause, Deadlock):
                raise runtime.failure.cause  # whichever worker noticed it is not to blame
            raise runtime.failure from runtime.failure.cause
        return self._results

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """Let the event loop run once, then wait: workers run in this very thread."""
        yield
        return self.wait()

    def durations(self) -> list[float]:
        """Return the seconds that each rank spent in the method."""
        return list(self._seconds)

    def resolve(self, rank: int, result: Any, seconds: float) -> None:
        """Take one rank's result."""
        self._results[rank], self._seconds[rank] = result, seconds
        self.left -= 1


class InlineWorker:
    """One worker, its strand and the calls that wait for it.

    Attributes:
        failure: why it is no more; None while it lives.
        since: when it began what it is at, in seconds of the monotonic clock.
    """

    def __init__(self, runtime: InlineRuntime, spec: WorkerSpec, place: Place, order: int) -> None:
        self._runtime, self._spec, self._place, self.order = runtime, spec, place, order
        self._tasks: deque[_Task] = deque()
        self._made: Worker | None = None
        self._at: InlineFuture | None = None  # the call that it is at
        self._interrupted = False  # whether a call failed for somebody else's sake
        self.method = "start"
        self.failure: WorkerFailed | None = None
        self.since = time.monotonic()
        self.in_lease, self.away = 0, False
        self.name = f"{place.group}[{place.rank}]"
        self.strand: Strand
        self.strand, self.thread = runtime.baton.start(self.name, self._run)

    @property
    def worker(self) -> Worker:
        """The worker itself."""
        assert self._made is not None  # asked for only after it was made
        return self._made

    @property
    def limit(self) -> float:
        """How many seconds it may take for what it is at."""
        deadlines = self._spec.deadlines
        if self._made is None:
            return deadlines.start
        return deadlines.methods.get(self.method, deadlines.call)

    @property
    def busy(self) -> bool:
        """Whether it has something to do."""
        return self.failure is None and (self._made is None or self.calling or bool(self._tasks))

    @property
    def calling(self) -> bool:
        """Whether it is at a call."""
        return self.failure is None and self._at is not None

    def anew(self) -> InlineWorker:
        """Return a new worker in place of this one."""
        return InlineWorker(self._runtime, self._spec, self._place, self.order)

    def submit(self, task: _Task) -> None:
        """Queue a call."""
        if self.failure is not None:
            task[0].failed = True
        elif not self.busy:
            self._begin(task)
        self._tasks.append(task)

    def drop(self) -> None:
        """End the call that it is at, at its next wait, and begin none of those that wait."""
        self._tasks.clear()
        self._interrupted = False
        if self.calling:
            self._runtime.baton.cancel(self.strand, Dropped)

    def fail(self, cause: BaseException, log: str = "") -> None:
        """Take note that it is no more."""
        failed = WorkerFailed(self._place.group, self._place.rank, self.method, cause, log)
        self.failure = failed
        for future in [self._at, *(task[0] for task in self._tasks)]:
            if future is not None:
                future.failed = True
        self._runtime.fail(failed)

    def stack(self) -> str:
        """Return where its thread is."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)[-10:]).rstrip() if frame else ""

    def _begin(self, task: _Task) -> None:
        self.method, self.since = task[1], time.monotonic()

    def _run(self) -> None:
        try:
            self._made = self._make()
            self.since = time.monotonic()
            while True:
                self.method = "idle" if not self._tasks else self._tasks[0][1]
                self._runtime.baton.wait(
                    lambda: bool(self._tasks) and not self._interrupted, "a call"
                )
                task = self._tasks.popleft()
                self._begin(task)
                self._at = task[0]
                self._call(*task)
                self._at = None
        except Cancelled:
            pass
        except BaseException as error:
            if not self.strand.abandoned:  # else it has failed already
                self.fail(error)
        finally:
            if self._made is not None:
                self._made.close()

    def _call(
        self, future: InlineFuture, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        call = public_method(self._made, method)
        began = time.monotonic_ns()
        try:
            result = call(*args, **kwargs)
        except (Dropped, ProducerGone) as error:  # nothing is wrong with this worker
            take_notes(self.worker)
            if isinstance(error, Dropped):
                self.strand.cancelled = None
            else:
                self._interrupted = True
                place = self._place
                self._runtime.fail(WorkerFailed(place.group, place.rank, method, error))
            return
        ended = time.monotonic_ns()
        notes = take_notes(self.worker)
        self._runtime.keep(Span(self.name, "call", method, began, ended, notes))
        future.resolve(self._place.rank, result, (ended - began) / 1e9)

    def _make(self) -> Worker:
        worker = make_worker(self._spec, self._place)
        if self._spec.takes_turns:
            devices = [device.index for device in self._place.devices]
            worker.lease = lambda: self._runtime.lease(self, devices)
        return worker


class InlineGroup:
    """Handles of the workers of one group."""

    def __init__(
        self, runtime: InlineRuntime, spec: WorkerSpec, places: Sequence[Place], order: int
    ) -> None:
        self._runtime, self.name, self.size = runtime, spec.name, len(places)
        self.workers = [InlineWorker(runtime, spec, place, order) for place in places]
        self.restarts = spec.restarts

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> InlineFuture:
        """Queue a call on all ranks, or some, and return at once."""
        future = InlineFuture(self._runtime, f"{self.name}.{method}", self.size)
        for rank in range(self.size) if ranks is None else sorted(set(ranks)):
            future.left += 1
            self.workers[rank].submit((future, method, args, kwargs))
        return future
