"""The ``inline`` runtime: everything in this process, one worker running at a time.

The default on a laptop: no daemon, no copies, repeatable, and ``pdb`` works anywhere. Workers are
strands of a :class:`rlinf_core.runtime.baton.Baton`; items travel by reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rlinf_core.errors import ChannelClosed, Deadlock, StaleDataError, WorkerFailed, did_you_mean
from rlinf_core.placement import GroupPlace
from rlinf_core.protocols.runtime import ChannelSpec, WorkerSpec
from rlinf_core.runtime.baton import Baton, Cancelled, Strand
from rlinf_core.runtime.worker import Place, Worker, make_worker, places

_Task = tuple["InlineFuture", str, tuple[Any, ...], dict[str, Any]]


class InlineFuture:
    """Results of one call by rank; see :class:`rlinf_core.protocols.runtime.Future`."""

    def __init__(self, runtime: InlineRuntime, what: str, size: int) -> None:
        self._runtime, self._what = runtime, what
        self._results: list[Any] = [None] * size
        self._left = size

    def done(self) -> bool:
        """Return whether every rank has finished."""
        return self._left == 0

    def wait(self) -> list[Any]:
        """Let workers run until every rank has finished; raise the first failure of any."""
        runtime = self._runtime
        runtime.baton.wait(lambda: self.done() or runtime.failure is not None, self._what)
        if runtime.failure is not None:
            if isinstance(runtime.failure.cause, Deadlock):
                raise runtime.failure.cause  # whichever worker noticed it is not to blame
            raise runtime.failure from runtime.failure.cause
        return self._results

    def resolve(self, position: int, result: Any) -> None:
        """Take one rank's result."""
        self._results[position] = result
        self._left -= 1


class _Inline:
    """One worker, its strand and the calls that wait for it."""

    def __init__(self, runtime: InlineRuntime, spec: WorkerSpec, place: Place) -> None:
        self._runtime, self._spec, self._place = runtime, spec, place
        self._tasks: deque[_Task | None] = deque()
        self.worker: Worker | None = None
        self.name = f"{place.group}[{place.rank}]"
        self.strand: Strand
        self.strand, self.thread = runtime.baton.start(self.name, self._run)

    def submit(self, task: _Task | None) -> None:
        """Queue a call; None ends the worker."""
        self._tasks.append(task)

    def _run(self) -> None:
        method = "start"
        try:
            self.worker = make_worker(self._spec, self._place)
            while True:
                self._runtime.baton.wait(lambda: bool(self._tasks), "a call")
                task = self._tasks.popleft()
                if task is None:
                    break
                future, method, args, kwargs = task
                future.resolve(self._place.rank, self._method(method)(*args, **kwargs))
        except Cancelled:
            pass
        except BaseException as error:
            self._runtime.fail(WorkerFailed(self._place.group, self._place.rank, method, error))
        finally:
            if self.worker is not None:
                self.worker.close()

    def _method(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(self.worker, name, None)
        if method is None:
            known = [m for m in dir(self.worker) if not m.startswith("_")]
            raise AttributeError(
                f"{type(self.worker).__name__} has no method {name!r}.{did_you_mean(name, known)}"
            )
        return method  # type: ignore[no-any-return]


class InlineGroup:
    """Handles of the workers of one group."""

    def __init__(self, runtime: InlineRuntime, spec: WorkerSpec, places: Sequence[Place]) -> None:
        self._runtime, self.name, self.size = runtime, spec.name, len(places)
        self.workers = [_Inline(runtime, spec, place) for place in places]

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> InlineFuture:
        """Queue a call on all ranks, or some, and return at once."""
        future = InlineFuture(self._runtime, f"{self.name}.{method}", self.size)
        chosen = range(self.size) if ranks is None else ranks
        for rank in range(self.size):
            if rank in chosen:
                self.workers[rank].submit((future, method, args, kwargs))
            else:
                future.resolve(rank, None)
        return future


class InlineChannel:
    """A keyed, bounded queue; items are handed over by reference."""

    def __init__(self, baton: Baton, name: str, spec: ChannelSpec) -> None:
        self.name, self._baton, self._spec = name, baton, spec
        self._items: dict[Any, deque[tuple[Any, float, int | None]]] = {}
        self._size = 0
        self._newest = 0
        self._closed = False

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, letting others run while the channel is full."""
        self._baton.wait(
            lambda: self._closed or self._size < self._spec.capacity, f"room in {self.name!r}"
        )
        if self._closed:
            raise ChannelClosed(f"put into the channel {self.name!r}, which is closed")
        if version is not None:
            self._newest = max(self._newest, version)
        self._items.setdefault(key, deque()).append((item, weight, version))
        self._size += 1

    def get(self, key: Any = None) -> Any:
        """Return the next item of ``key``, letting others run while there is none."""
        return self._take(key)[0]

    def get_batch(self, weight: float, key: Any = None) -> list[Any]:
        """Return items until their weights add up to ``weight``."""
        items, total = [], 0.0
        while total < weight:
            item, share = self._take(key)
            items.append(item)
            total += share
        return items

    def close(self) -> None:
        """End the stream; what is in it can still be read."""
        self._closed = True

    def _take(self, key: Any) -> tuple[Any, float]:
        self._baton.wait(
            lambda: self._closed or bool(self._items.get(key)),
            f"an item in {self.name!r}" + ("" if key is None else f" for {key!r}"),
        )
        if not self._items.get(key):
            raise ChannelClosed(f"the channel {self.name!r} is closed and holds nothing more")
        item, weight, version = self._items[key].popleft()
        self._size -= 1
        limit = self._spec.max_staleness
        if limit is not None and version is not None and self._newest - version > limit:
            raise StaleDataError(
                f"the channel {self.name!r} holds an item of weights {version}; the newest are "
                f"{self._newest} and at most {limit} behind are accepted"
            )
        return item, weight


class InlineRuntime:
    """One process, one worker at a time; see :class:`rlinf_core.protocols.runtime.Runtime`."""

    def __init__(self, config: Any = None) -> None:
        self.baton = Baton()
        self.failure: WorkerFailed | None = None
        self._groups: list[InlineGroup] = []
        self._channels: dict[str, InlineChannel] = {}

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> InlineGroup:
        """Make a group of workers; each is constructed when it first gets the baton."""
        group = InlineGroup(self, spec, places(spec.name, processes, placement))
        self._groups.append(group)
        return group

    def channel(self, name: str, spec: ChannelSpec | None = None) -> InlineChannel:
        """Return the channel of that name, making it where there is none."""
        if name not in self._channels:
            self._channels[name] = InlineChannel(self.baton, name, spec or ChannelSpec())
        return self._channels[name]

    def fail(self, failure: WorkerFailed) -> None:
        """Note the first failure; whoever waits in the driver raises it."""
        self.failure = self.failure or failure

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
