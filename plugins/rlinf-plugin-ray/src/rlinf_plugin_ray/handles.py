"""What the driver holds of workers: groups, calls under way, its own channels.

Nothing here waits by itself: :class:`rlinf_plugin_ray.runtime.RayRuntime` listens to all at once.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from rlinf_core.api import (
    DeadlineExceeded,
    ProducerGone,
    RuntimeFailure,
    Span,
    WorkerDied,
    WorkerFailed,
    WorkerSpec,
    toolkit,
)
from rlinf_plugin_ray import failures, logs
from rlinf_plugin_ray.actor import Assignment, Failure, Result, Whereabouts, clock
from rlinf_plugin_ray.client import Cancelled, Client
from rlinf_plugin_ray.parcels import unwrap, wrap

if TYPE_CHECKING:
    from rlinf_plugin_ray.runtime import RayRuntime


class RayFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: RayRuntime, size: int) -> None:
        self._runtime, self._epoch = runtime, runtime.epoch
        self._results: list[Any] = [None] * size
        self._seconds = [0.0] * size
        self.left = 0

    def done(self) -> bool:
        """Return whether :meth:`wait` would return, or raise, at once."""
        self._runtime.hear(0.0)
        return not self._waits()

    def wait(self) -> list[Any]:
        """Wait until every rank has finished; raise the first failure of any worker before."""
        while self._waits():
            self._runtime.hear(None)
        if self.left or self._dropped():
            self._runtime.raise_failure()
            raise RuntimeFailure("the call was ended when a failed worker was made anew")
        return self._results

    def _waits(self) -> bool:
        return bool(self.left) and self._runtime.failure is None and not self._dropped()

    def _dropped(self) -> bool:
        return self._epoch != self._runtime.epoch

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
        with self._runtime.inbox.news(asyncio.get_running_loop()) as news:
            while not self.done():
                news.clear()
                await self._runtime.until(news)
        return self.wait()


@dataclass(eq=False)
class _Call:
    method: str
    future: RayFuture
    sent: float


class Remote:
    """The driver's handle of one worker."""

    def __init__(
        self, runtime: RayRuntime, assignment: Assignment, make: Callable[[], Any]
    ) -> None:
        self.runtime, self.assignment, self._make = runtime, assignment, make
        self.place, self.spec = assignment.place, assignment.spec
        self.name, self.where = assignment.name, Whereabouts("", 0, (), 0)
        self.failure: WorkerFailed | None = None
        self._over = False  # whether nothing more is heard of it
        self._made = False
        self._calls: list[_Call] = []
        self._since = time.monotonic()  # when what it is at began
        self.actor = make()
        self._watch = self.actor.watch.remote()
        inbox = runtime.inbox
        inbox.watch(self._watch, self._heard)
        inbox.watch(self.actor.where.remote(), self._arrived)
        inbox.watch(self.actor.start.remote(wrap(assignment)), self._started)

    # --- telling it ------------------------------------------------------------------------------

    def call(self, future: RayFuture, method: str, work: object) -> None:
        """Send a call."""
        parcel = wrap(work)
        call = _Call(method, future, time.monotonic())
        self._calls.append(call)
        future.left += 1
        ref = self.actor.call.remote(self.runtime.epoch, method, parcel)
        self.runtime.inbox.watch(ref, partial(self._returned, call))

    def drop(self, epoch: int) -> None:
        """End what it is at, as soon as it can be, and what it has yet to begin."""
        self._calls = []
        self.actor.begin.remote(epoch)

    def end(self) -> ray.ObjectRef:
        """Ask it to close, after what it is at; return what is there when it has."""
        return self.actor.end.remote()

    def kill(self) -> ray.ObjectRef:
        """End its process; return what is there when it has ended."""
        self._over = True
        ray.kill(self.actor)
        return self._watch

    def again(self) -> Remote:
        """Return a new worker in the place of this one."""
        return Remote(self.runtime, self.assignment, self._make)

    # --- deadlines -------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """What it is at: "start", a method, or "idle"."""
        if not self._made:
            return "start"
        return self._calls[0].method if self._calls else "idle"

    @property
    def busy(self) -> bool:
        """Whether it has something to do."""
        return not self._over and (not self._made or bool(self._calls))

    @property
    def since(self) -> float:
        """When it began what it is at, in seconds of the monotonic clock."""
        return max(self._since, self._calls[0].sent) if self._made and self._calls else self._since

    @property
    def limit(self) -> float:
        """How many seconds it may take for that."""
        deadlines = self.spec.deadlines
        if not self._made:
            return deadlines.start
        return deadlines.methods.get(self.method, deadlines.call)

    def due(self) -> float:
        """Return by when, on the same clock, it must have said something."""
        return self.since + self.limit if self.busy else float("inf")

    def allow(self, seconds: float) -> None:
        """Give it more time for what it is at."""
        self._since = self.since + seconds

    def expire(self, why: str) -> None:
        """End a worker that took too long; its last lines say where it was."""
        method, there = self.method, self.runtime.there
        said = there(self.where, logs.stacks, self.where.pid, self.where.logs) or ""
        ray.kill(self.actor)
        there(self.where, logs.kill, self.where.pid)
        self._fail(DeadlineExceeded(why), method, said)

    # --- hearing of it ---------------------------------------------------------------------------

    def _arrived(self, done: Future[Any]) -> None:
        if not done.exception():
            self.where = done.result()

    def _started(self, done: Future[Any]) -> None:
        if self._heard(done) and not self._over:
            if (failure := done.result()) is not None:
                self._fail(_read(failure), "start", failure.log)
            else:
                self._made, self._since = True, time.monotonic()

    def _returned(self, call: _Call, done: Future[Any]) -> None:
        if call not in self._calls or not self._heard(done):
            return
        self._since = time.monotonic()
        reply: Result | Failure | None = done.result()
        if isinstance(reply, Failure):
            self._raised(call, reply)
        elif reply is not None:
            self._calls.remove(call)
            try:
                result, spans = unwrap(reply.parcel)
            except Exception as error:  # what it sent cannot be read here
                self._fail(error, call.method)
                return
            self.runtime.keep(self._on_our_clock(spans))
            call.future.resolve(self.place.rank, result, reply.seconds)

    def _raised(self, call: _Call, failure: Failure) -> None:
        cause = _read(failure)
        if isinstance(cause, ProducerGone):  # nothing is wrong with it; somebody else is to blame
            place = self.place
            told = WorkerFailed(place.group, place.rank, call.method, cause, failure.log)
            self.runtime.fail(told, follows=True)
        else:
            self._fail(cause, call.method, failure.log)

    def _heard(self, done: Future[Any]) -> bool:
        """Return whether it has answered; else it is gone."""
        error = done.exception()
        if error is not None and not self._over:
            self._fail(failures.death(error), self.method)
        return error is None

    def _fail(self, cause: BaseException, method: str, log: str | None = None) -> None:
        self._over = True
        if log is None:
            log = self.runtime.there(self.where, logs.tail, self.where.logs) or ""
            if isinstance(cause, WorkerDied):
                cause = failures.with_signal(cause, log)
        self.failure = WorkerFailed(self.place.group, self.place.rank, method, cause, log)
        self.runtime.lose(self)

    def _on_our_clock(self, spans: Sequence[Span]) -> Sequence[Span]:
        """Return the spans of another machine, as far as the cluster keeps the time of day."""
        if self.where.node == self.runtime.node:
            return spans
        shift = self.where.ahead - clock()
        return [span._replace(began=span.began + shift, ended=span.ended + shift) for span in spans]


def _read(failure: Failure) -> BaseException:
    """Return what was raised."""
    try:
        cause: BaseException = pickle.loads(failure.error)
    except Exception as error:  # its class cannot be imported here
        cause = RuntimeFailure(f"an error that cannot be read here ({error})")
    cause.__cause__ = toolkit.RemoteTraceback(failure.traceback)
    return cause


class RayGroup:
    """Handles of the workers of one group."""

    def __init__(self, runtime: RayRuntime, spec: WorkerSpec, workers: Sequence[Remote]) -> None:
        self._runtime, self.name, self.size = runtime, spec.name, len(workers)
        self.workers = list(workers)
        self.restarts = spec.restarts  # that are left

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> RayFuture:
        """Send a call to all ranks, or some, and return at once."""
        self._runtime.raise_failure()
        future = RayFuture(self._runtime, self.size)
        for rank in range(self.size) if ranks is None else sorted(set(ranks)):
            self.workers[rank].call(future, method, (args, kwargs))
        return future


class DriverClient(Client):
    """The driver's own end of the board: it listens to the workers while it waits."""

    def __init__(self, runtime: RayRuntime, board: Any, key: str) -> None:
        super().__init__("driver", board, key)
        self._runtime = runtime

    def _ask(self, verb: str, *content: Any) -> Sequence[Any]:
        self.epoch = self._runtime.epoch
        self._runtime.raise_failure()
        try:
            return super()._ask(verb, *content)
        except Cancelled:
            self._runtime.why()
            raise RuntimeFailure("the runtime was closed meanwhile") from None

    def _idly(self, ref: ray.ObjectRef) -> Any:
        answers: list[Future[Any]] = []
        self._runtime.inbox.watch(ref, answers.append)
        try:
            while not answers:
                self._runtime.raise_failure()
                self._runtime.hear(None)
        except BaseException:
            self.board.forget.remote(self.name)  # or it would take what is for its next request
            raise
        try:
            return answers[0].result()
        except RayError:
            raise Cancelled from None
