"""The ``inline`` runtime: everything in this process, one worker running at a time.

The default on a laptop: no daemon, no copies, repeatable, and ``pdb`` works anywhere. Workers are
strands of a :class:`rlinf_core.runtime.baton.Baton`; items travel by reference.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from rlinf_core.errors import Deadlock, WorkerFailed
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec
from rlinf_core.runtime.baton import Baton, Cancelled, Strand
from rlinf_core.runtime.dequeue import Fifo
from rlinf_core.runtime.lease import Leases
from rlinf_core.runtime.queue import ItemQueue
from rlinf_core.runtime.timer import MOST_SPANS, Timer
from rlinf_core.runtime.worker import (
    Place,
    Worker,
    check_name,
    make_worker,
    places,
    public_method,
    take_notes,
)

_Task = tuple["InlineFuture", str, tuple[Any, ...], dict[str, Any]]


class InlineFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: InlineRuntime, what: str, size: int) -> None:
        self._runtime, self._what = runtime, what
        self._results: list[Any] = [None] * size
        self._seconds = [0.0] * size
        self.left = 0

    def done(self) -> bool:
        """Return whether every rank has finished."""
        return self.left == 0

    def wait(self) -> list[Any]:
        """Let workers run until every rank has finished; raise the first failure of any."""
        runtime = self._runtime
        runtime.baton.wait(lambda: self.done() or runtime.failure is not None, self._what)
        if runtime.failure is not None:
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


class _Inline:
    """One worker, its strand and the calls that wait for it."""

    def __init__(self, runtime: InlineRuntime, spec: WorkerSpec, place: Place, order: int) -> None:
        self._runtime, self._spec, self._place, self.order = runtime, spec, place, order
        self._tasks: deque[_Task | None] = deque()
        self._made: Worker | None = None
        self.in_lease, self.away = 0, False
        self.name = f"{place.group}[{place.rank}]"
        self.strand: Strand
        self.strand, self.thread = runtime.baton.start(self.name, self._run)

    @property
    def worker(self) -> Worker:
        """The worker itself."""
        assert self._made is not None  # asked for only after it was made
        return self._made

    def submit(self, task: _Task | None) -> None:
        """Queue a call; None ends the worker."""
        self._tasks.append(task)

    def _run(self) -> None:
        method = "start"
        try:
            self._made = self._make()
            while True:
                self._runtime.baton.wait(lambda: bool(self._tasks), "a call")
                task = self._tasks.popleft()
                if task is None:
                    break
                future, method, args, kwargs = task
                call = public_method(self._made, method)
                began = time.monotonic_ns()
                result = call(*args, **kwargs)
                ended = time.monotonic_ns()
                notes = take_notes(self._made)
                self._runtime.keep(Span(self.name, "call", method, began, ended, notes))
                future.resolve(self._place.rank, result, (ended - began) / 1e9)
        except Cancelled:
            pass
        except BaseException as error:
            self._runtime.fail(WorkerFailed(self._place.group, self._place.rank, method, error))
        finally:
            if self._made is not None:
                self._made.close()

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
        self.workers = [_Inline(runtime, spec, place, order) for place in places]

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> InlineFuture:
        """Queue a call on all ranks, or some, and return at once."""
        future = InlineFuture(self._runtime, f"{self.name}.{method}", self.size)
        for rank in range(self.size) if ranks is None else sorted(set(ranks)):
            future.left += 1
            self.workers[rank].submit((future, method, args, kwargs))
        return future


class InlineChannel:
    """A keyed, bounded queue; items are handed over by reference."""

    def __init__(self, runtime: InlineRuntime, name: str, spec: ChannelSpec) -> None:
        self.name, self._runtime, self._baton = name, runtime, runtime.baton
        policy = Fifo() if spec.policy is None else resolve_ref(spec.policy)()
        self.queue = ItemQueue(name, spec, policy)
        self.writers: set[str] = set()

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, letting others run while the channel is full."""
        self.writers.add(self._baton.strand.name)
        with self._runtime.span("wait", self.name):
            self._baton.wait(lambda: self.queue.room(key), f"room in {self.name!r}")
        self.queue.put(item, key, weight, version)

    def get(self, key: Any = None, version: int | None = None) -> Any:
        """Return the next item of ``key``, letting others run while there is none."""
        return self._take(key, None, version)[0]

    def get_batch(self, weight: float, key: Any = None, version: int | None = None) -> list[Any]:
        """Return items until their weights add up to ``weight``."""
        return self._take(key, weight, version)

    def close(self) -> None:
        """End the stream; what is in it can still be read."""
        self.queue.close()

    def _take(self, key: Any, weight: float | None, version: int | None) -> list[Any]:
        self.queue.announce(version)
        request = self.queue.ask(self._baton.strand.name, key, weight)
        what = f"an item in {self.name!r}" + ("" if key is None else f" for {key!r}")
        try:
            with self._runtime.span("wait", self.name):
                self._baton.wait(lambda: request.settled, what)
        except BaseException:
            self.queue.withdraw(request)
            raise
        return request.result()


class InlineRuntime:
    """One process, one worker at a time; see :class:`rlinf_core.protocols.runtime.Runtime`."""

    def __init__(self, config: Any = None) -> None:
        self.baton = Baton()
        self.failure: WorkerFailed | None = None
        self._groups: list[InlineGroup] = []
        self._channels: dict[str, InlineChannel] = {}
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._leases = Leases()
        self._resident: set[_Inline] = set()  # workers that were let in and have not left
        self._leaving: list[_Inline] = []  # those of them that were asked to leave

    def reserve(self, places: Iterable[GroupPlace]) -> None:
        """Do nothing: this machine's devices are there for whoever uses them."""

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> InlineGroup:
        """Make a group of workers; each is constructed when it first gets the baton."""
        check_name(spec.name, self._groups)
        at = places(spec.name, processes, placement)
        group = InlineGroup(self, spec, at, order=len(self._groups))
        self._groups.append(group)
        return group

    def channel(self, name: str, spec: ChannelSpec | None = None) -> InlineChannel:
        """Return the channel of that name, making it where there is none."""
        if name not in self._channels:
            self._channels[name] = InlineChannel(self, name, spec or ChannelSpec())
        return self._channels[name]

    def spans(self) -> list[Span]:
        """Return the spans since the last time."""
        taken = list(self._spans)
        self._spans.clear()
        return taken

    def fail(self, failure: WorkerFailed) -> None:
        """Note the first failure; whoever waits in the driver raises it."""
        self.failure = self.failure or failure
        name = f"{failure.group}[{failure.rank}]"
        for channel in self._channels.values():
            if name in channel.writers:
                channel.queue.lose(f"{name}, which wrote to it, has failed")

    def keep(self, span: Span) -> None:
        """Take a span."""
        self._spans.append(span)

    def span(self, kind: str, name: str) -> Timer:
        """Time a block of the calling worker."""
        return Timer(self._spans, self.baton.strand.name, kind, name)

    @contextmanager
    def lease(self, worker: _Inline, devices: Sequence[int]) -> Iterator[None]:
        """Hold devices; see :class:`rlinf_core.runtime.lease.Leases`."""
        if worker in self._resident:
            worker.in_lease += 1
        else:
            self._leases.ask(worker, devices, worker.order)
            with self.span("wait", "device"):
                self.baton.wait(lambda: self._let_in(worker), "a device")
            if worker.away:
                with self.span("switch", "onload"):
                    worker.worker.onload()
                worker.away = False
        try:
            yield
        finally:
            worker.in_lease -= 1

    def _let_in(self, worker: _Inline) -> bool:
        """Move the leases on; who has to leave is not running, and is offloaded from here."""
        changed = True
        while changed:
            granted, leaving = cast("tuple[list[_Inline], list[_Inline]]", self._leases.advance())
            self._resident.update(granted)
            for who in granted:
                who.in_lease = 1  # before it runs, or another would send it away meanwhile
            self._leaving += leaving
            changed = False
            for other in [other for other in self._leaving if not other.in_lease]:
                with self.span("switch", "offload"):
                    other.worker.offload()
                other.away = True
                self._leaving.remove(other)
                self._resident.discard(other)
                self._leases.left(other)
                changed = True
        return worker in self._resident

    def interrupt(self) -> None:
        """Give the driver the baton at the next hand-over, with ``KeyboardInterrupt``."""
        self.baton.cancel(self.baton.driver, KeyboardInterrupt)

    def close(self) -> None:
        """End every worker, in the reverse order of launching."""
        self.baton.driver.cancelled = None
        for group in reversed(self._groups):
            for worker in group.workers:
                self.baton.end(worker.strand)
                worker.thread.join()
        self._groups = []
