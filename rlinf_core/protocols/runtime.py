"""Runtime: runs groups of workers and joins them by channels.

The target of a runtime component is called as ``target(config)``. A run is written once against
this protocol; a runtime decides only where workers run and how their calls and items travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlinf_core.placement import GroupPlace


@dataclass(frozen=True)
class WorkerSpec:
    """What is needed to make the workers of one group, wherever they run.

    Args:
        name: name of the group, as shown in errors and timelines.
        target: ``"pkg.module:Class"`` of a :class:`rlinf_core.runtime.worker.Worker`.
        arguments: keyword arguments of its constructor; plain data, refs and specs.
    """

    name: str
    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChannelSpec:
    """How a channel behaves.

    Args:
        capacity: items it holds before ``put`` waits.
        max_staleness: how many weight versions an item may lag behind the newest version that the
            channel was told of; None accepts any.
    """

    capacity: int = 64
    max_staleness: int | None = None


class Future(Protocol):
    """The outcome of a call on a group, one result per rank."""

    def wait(self) -> list[Any]:
        """Return the results by rank.

        Raises:
            WorkerFailed: a worker of the runtime raised or died.
        """
        ...

    def done(self) -> bool:
        """Return whether :meth:`wait` would return at once."""
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

    def get(self, key: Any = None) -> Any:
        """Return the next item of ``key``, waiting for it.

        Raises:
            ChannelClosed: the channel has ended and holds nothing more for this key.
            StaleDataError: the item is older than the channel accepts.
        """
        ...

    def get_batch(self, weight: float, key: Any = None) -> list[Any]:
        """Return items whose weights add up to at least ``weight``."""
        ...

    def close(self) -> None:
        """End the stream: readers get what is left, then :class:`ChannelClosed`."""
        ...


class Runtime(Protocol):
    """Launches groups and makes channels; owns everything that it starts."""

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> WorkerGroup:
        """Start the workers of a group, without waiting until they run.

        Args:
            spec: what the workers are.
            processes: how many, where there is no placement.
            placement: one entry per worker: which devices it gets.
        """
        ...

    def channel(self, name: str, spec: ChannelSpec | None = None) -> Channel:
        """Make a channel, or return the one of that name."""
        ...

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        ...

    def close(self) -> None:
        """End every worker and free everything; may be called twice."""
        ...
