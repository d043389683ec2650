"""Runtime: runs groups of workers and joins them by channels.

The target of a runtime component is called as ``target(config)``. A run is written once against
this protocol; a runtime decides only where workers run and how their calls and items travel.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rlinf_core.placement import GroupPlace
from rlinf_core.specs import ComponentRef


@dataclass(frozen=True)
class Deadlines:
    """How many seconds the workers of a group may take; what takes longer is a failure.

    Args:
        start: from the launch of a worker until it is made: its imports and its constructor.
        call: a call of any method that ``methods`` does not name, waiting included.
        methods: the same for single methods, by name.
    """

    start: float = 300.0
    call: float = 3600.0
    methods: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerSpec:
    """What is needed to make the workers of one group, wherever they run.

    Args:
        name: name of the group, as shown in errors and timelines.
        target: ``"pkg.module:Class"`` of a :class:`rlinf_core.runtime.worker.Worker`.
        arguments: keyword arguments of its constructor; plain data, refs and specs.
        takes_turns: whether it shares its devices by turns: it computes only within
            ``Worker.lease``, and offloads where another group wants the device.
        deadlines: how long it may take for what.
        restarts: how many of its workers may fail, in all, before the run does: so often
            :meth:`Runtime.recover` makes them anew.
    """

    name: str
    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    takes_turns: bool = False
    deadlines: Deadlines = Deadlines()
    restarts: int = 0


class Span(NamedTuple):
    """A stretch of a worker's time.

    Attributes:
        worker: ``group[rank]``.
        kind: "call" (a whole call), and within it "wait" (for an item, for room, for a device),
            "transfer" (an item is packed or unpacked) or "switch" (devices are offloaded or
            onloaded); what is left of a call is computing.
        name: the method, or what was waited for.
        began: nanoseconds of the machine's monotonic clock.
        ended: the same.
        details: plain data, such as ``{"version": 3}``.
    """

    worker: str
    kind: str
    name: str
    began: int
    ended: int
    details: Mapping[str, Any] = {}


@dataclass(frozen=True)
class ChannelSpec:
    """How a channel behaves.

    Args:
        capacity: items it holds before ``put`` waits.
        max_staleness: how many weight versions an item may lag behind the newest version that the
            channel was told of, by whoever puts or gets; None accepts any.
        policy: the dequeue policy, which decides who gets what where several items or readers
            wait; None is first in, first out.
    """

    capacity: int = 64
    max_staleness: int | None = None
    policy: ComponentRef | None = None


class Future(Protocol):
    """The outcome of a call on a group, one result per rank."""

    def wait(self) -> list[Any]:
        """Return the results by rank.

        Raises:
            WorkerFailed: a worker of the runtime raised or died.
            RuntimeFailure: the runtime itself failed.
        """
        ...

    def done(self) -> bool:
        """Return whether :meth:`wait` would return at once."""
        ...

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """Wait without holding up an event loop."""
        ...

    def durations(self) -> list[float]:
        """Return the seconds that each rank spent in the method, waiting included, by rank.

        Call it after :meth:`wait`; 0.0 stands for ranks that were not called.
        """
        ...


class WorkerGroup(Protocol):
    """Handles of the workers of one group."""

    name: str
    size: int

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> Future:
        """Call a method on all ranks (or some) and return at once.

        Channels may be passed as arguments; calls of one worker run in order.
        """
        ...


class Channel(Protocol):
    """A named, keyed, bounded queue between workers."""

    name: str

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Add an item, waiting while the channel is full.

        Args:
            key: only a ``get`` with this key receives it.
            weight: its share of work, for batches by weight and balancing policies.
            version: version of the weights that produced it.
        """
        ...

    def get(self, key: Any = None, version: int | None = None, timeout: float | None = None) -> Any:
        """Return the next item of ``key``, waiting for it.

        An item's arrays and tensors may lie in memory that is shared with who put it: read them,
        or copy them before writing. They stay as they are for as long as anybody holds them.

        Args:
            key: the one it was put with.
            version: newest version of the weights that the reader knows of.
            timeout: seconds to wait; None waits for as long as it takes.

        Raises:
            ChannelTimeout: nothing came in time. A runtime that sees that nothing ever will may
                raise :class:`rlinf_core.errors.Deadlock` at once instead.
            ChannelClosed: the channel has ended and holds nothing more for this key.
            ProducerGone: a worker that wrote to the channel has failed.
            StaleDataError: the item is older than the channel accepts.
        """
        ...

    def get_batch(self, weight: float, key: Any = None, version: int | None = None) -> list[Any]:
        """Return items whose weights add up to at least ``weight``, all for one reader.

        Raises as :meth:`get`; where the channel ends before, what was there stays in it.
        """
        ...

    def close(self) -> None:
        """End the stream: readers get what is left, then :class:`ChannelClosed`."""
        ...


class Runtime(Protocol):
    """Launches groups and makes channels; owns everything that it starts."""

    def reserve(self, places: Iterable[GroupPlace]) -> None:
        """Take the devices of groups that will be launched, all of them or none.

        Called before the first launch, by whoever knows them all; what is launched elsewhere, the
        runtime takes when that is launched.

        Raises:
            RequestError: there are no such devices.
            RuntimeFailure: others have them.
        """
        ...

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> WorkerGroup:
        """Start the workers of a group, without waiting until they run.

        Args:
            spec: what the workers are.
            processes: how many, where there is no placement.
            placement: one entry per worker: which devices it gets.

        Raises:
            RuntimeFailure: there is a group of that name.
        """
        ...

    def channel(self, name: str, spec: ChannelSpec | None = None) -> Channel:
        """Make a channel, or return the one of that name."""
        ...

    def spans(self) -> list[Span]:
        """Return what workers did and waited for since the last call of this method.

        Spans of a call are there once its future is done.
        """
        ...

    def recover(self) -> list[tuple[str, int]]:
        """Make failed workers anew, after a wait raised :class:`WorkerFailed`, and go on.

        What every other worker is at is ended, and its future never has a result; channels are
        empty and open. Nobody else loses what it holds. The new workers hold nothing: whatever
        calls made the old ones what they were are the run's to repeat.

        Returns:
            Group and rank of each worker that was made anew.

        Raises:
            WorkerFailed: the failure once more, where its group may not restart any more.
        """
        ...

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        ...

    def close(self) -> None:
        """End every worker and free everything; may be called twice."""
        ...
