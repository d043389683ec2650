"""The ``inline`` runtime: everything in this process, one worker running at a time.

The default on a laptop: no daemon, no copies, repeatable, and ``pdb`` works anywhere. Workers are
strands of a :class:`rlinf_core.runtime.baton.Baton`; items travel by reference.

A worker that misses a deadline cannot be killed, being a thread: it is abandoned. The driver goes
on without it, with an error that says where it is; the thread, and what it holds, ends with the
process, or as soon as it waits for anything.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from rlinf_core.errors import DeadlineExceeded, Deadlock, RequestError, WorkerFailed
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec
from rlinf_core.runtime.baton import Baton, Cancelled
from rlinf_core.runtime.dequeue import Fifo
from rlinf_core.runtime.inline_worker import InlineGroup, InlineWorker
from rlinf_core.runtime.lease import Leases
from rlinf_core.runtime.queue import ItemQueue
from rlinf_core.runtime.timer import MOST_SPANS, Timer
from rlinf_core.runtime.worker import check_name, places

_CLOSING = 30.0  # seconds that a worker gets to close what it holds
_INTERRUPTED = 5.0  # seconds that it may go on computing after an interrupt


class InlineChannel:
    """A keyed, bounded queue; items are handed over by reference."""

    def __init__(self, runtime: InlineRuntime, name: str, spec: ChannelSpec) -> None:
        self.name, self._runtime, self._baton = name, runtime, runtime.baton
        self._spec = spec
        self.empty()

    def empty(self) -> None:
        """Make it as it was when it was new."""
        policy = Fifo() if self._spec.policy is None else resolve_ref(self._spec.policy)()
        self.queue = ItemQueue(self.name, self._spec, policy)
        self.writers: set[str] = set()

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, letting others run while the channel is full."""
        self.writers.add(self._baton.strand.name)
        with self._runtime.span("wait", self.name):
            self._baton.wait(lambda: self.queue.room(key), f"room in {self.name!r}")
        self.queue.put(item, key, weight, version)

    def get(self, key: Any = None, version: int | None = None, timeout: float | None = None) -> Any:
        """Return the next item of ``key``, letting others run while there is none.

        It never waits in vain: where nobody can go on, that is a deadlock, and told at once.
        """
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
    """One process, one worker at a time; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        config: it has no options.

    Attributes:
        failure: the first that has not been recovered from.
        era: how often it recovered from failures; a call belongs to the one it was made in.
    """

    def __init__(self, config: Any = None) -> None:
        self.baton = Baton(self._too_long)
        self.failure: WorkerFailed | None = None
        self.era = 0
        self._interrupted: float | None = None
        self._closing = False
        self._groups: list[InlineGroup] = []
        self._channels: dict[str, InlineChannel] = {}
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._leases = Leases()
        self._resident: set[InlineWorker] = set()  # workers that were let in and have not left
        self._leaving: list[InlineWorker] = []  # those of them that were asked to leave

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

    def recover(self) -> list[tuple[str, int]]:
        """Make failed workers anew, and those that fail meanwhile."""
        made: list[tuple[str, int]] = []
        while self.failure is not None:
            failed = self._failed(self.failure)
            for channel in self._channels.values():
                channel.empty()
            living = [w for group in self._groups for w in group.workers if w.failure is None]
            for worker in living:
                worker.drop()
            self.failure = None
            self.era += 1
            self._wait_for(living)
            for group, rank in failed:
                gone = group.workers[rank]
                self._leases.forget(gone)
                self._resident.discard(gone)
                self._leaving = [worker for worker in self._leaving if worker is not gone]
                group.restarts -= 1
                group.workers[rank] = gone.anew()
                made.append((group.name, rank))
        return made

    def _wait_for(self, workers: Sequence[InlineWorker]) -> None:
        self.baton.wait(lambda: not any(w.calling for w in workers), "calls to end")

    def _failed(self, failure: WorkerFailed) -> list[tuple[InlineGroup, int]]:
        """Return who is to be made anew; raise what forbids it."""
        failed = []
        for group in self._groups:
            mine = [w for w in group.workers if w.failure is not None]
            failed += [(group, group.workers.index(worker)) for worker in mine]
            errors = [worker.failure for worker in mine if worker.failure is not None]
            hopeless = [e for e in errors if isinstance(e.cause, RequestError | Deadlock)]
            if hopeless or len(mine) > group.restarts:
                error = (hopeless or errors)[-1]
                raise error from error.cause
        if not failed:
            raise failure from failure.cause
        return failed

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
    def lease(self, worker: InlineWorker, devices: Sequence[int]) -> Iterator[None]:
        """Hold devices; see :class:`rlinf_core.runtime.lease.Leases`."""
        if worker in self._resident:
            worker.in_lease += 1
        else:
            self._leases.ask(worker, devices, worker.order)
            try:
                with self.span("wait", "device"):
                    self.baton.wait(lambda: self._let_in(worker), "a device")
            except BaseException:  # it may have been let in, and not have come
                self._leases.forget(worker)
                self._resident.discard(worker)
                worker.in_lease = 0
                raise
            if worker.away:
                with self.span("switch", "onload"):
                    worker.worker.onload()
                worker.away = False
        try:
            yield
        finally:
            worker.in_lease -= 1

    def _let_in(self, worker: InlineWorker) -> bool:
        """Move the leases on; who has to leave is not running, and is offloaded from here."""
        changed = True
        while changed:
            granted, leaving = cast(
                "tuple[list[InlineWorker], list[InlineWorker]]", self._leases.advance()
            )
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
        self._interrupted = time.monotonic()
        self.baton.cancel(self.baton.driver, KeyboardInterrupt)

    def close(self) -> None:
        """End every worker, in the reverse order of launching."""
        self.baton.driver.cancelled, self._closing = None, True
        for group in reversed(self._groups):
            for worker in group.workers:
                self.baton.end(worker.strand)
                if not worker.strand.abandoned:
                    worker.thread.join()
        self._groups = []

    # --- what takes too long ---------------------------------------------------------------------

    def _too_long(self) -> bool:
        """Return whether whoever has the baton is to be abandoned; say whose fault it is."""
        now, holder = time.monotonic(), self.baton.holder
        if self._closing:
            return now - holder.since > _CLOSING
        if self.baton.driver.cancelled is not None:
            return now - (self._interrupted or now) > _INTERRUPTED
        workers = [worker for group in self._groups for worker in group.workers]
        late = [w for w in workers if w.busy and now - w.since > w.limit]
        if not late or self.failure is not None:
            return False
        first = max(late, key=lambda worker: now - worker.since - worker.limit)
        running = next((w for w in workers if w.strand is holder), first)
        if now - holder.since < 1.0:  # they all move, but take too long
            running = first
        text = f"{first.name}.{first.method} took more than {first.limit:g} s, its deadline"
        if running is not first:
            text += f", waiting for {first.strand.what}; this one ran, and waits for nobody"
        running.fail(
            DeadlineExceeded(f"{text}; a thread cannot be killed: it is left alone"),
            running.stack(),
        )
        if running.strand is not holder:
            self.baton.cancel(running.strand, Cancelled)
        return running.strand is holder
