"""A dry pass: the code of a run on a runtime that only notes what it is asked to do.

Groups, calls, and which channels each call reads and writes become a :class:`Graph`. No worker is
made and no tensor exists: what a call would return comes from the :class:`Interface` of the worker,
which stands beside the workers' names, in ``rlinf_core/runs/interfaces.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_core.errors import RlinfError, did_you_mean
from rlinf_core.placement import GroupPlace
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec


@dataclass(frozen=True)
class Method:
    """What a call of a worker's method does, as far as the flow can see.

    Args:
        parameters: names of its parameters, in order.
        reads: those parameters that are channels it gets items from.
        writes: those that are channels it puts items into.
        keeps: those that are channels which later calls of the same worker read or write, if
            this one came before.
        result: what each rank returns on a dry pass: plain data, or a function of the arguments by
            name that returns it.
    """

    parameters: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    result: Any | Callable[[Mapping[str, Any]], Any] = None


Interface = Mapping[str, Method]
"""A worker's methods by name."""


# --- what a trace gives ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """A group of workers: its name, its processes, and the class that they are made of."""

    name: str
    size: int
    target: str
    place: GroupPlace = ()


@dataclass(frozen=True)
class Call:
    """One call on a group.

    Attributes:
        phase: part of the run in which it happens, such as "iteration".
        group: name of the group.
        method: name of the method.
        reads: channels it gets items from, as (name of the channel, name of the parameter).
        writes: channels it puts items into, likewise.
        arguments: its other arguments by name.
    """

    phase: str
    group: str
    method: str
    reads: tuple[tuple[str, str], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """What moves through one channel from one group to another, in one phase.

    Attributes:
        what: name of the parameter that the writer knows the channel by, which says what is in it.
    """

    phase: str
    channel: str
    what: str
    source: Call
    target: Call


@dataclass(frozen=True)
class Graph:
    """The macro flow of a run: groups, and what they are called for."""

    groups: tuple[Group, ...]
    calls: tuple[Call, ...]

    def group(self, name: str) -> Group:
        """Return the group of that name."""
        return next(group for group in self.groups if group.name == name)

    def streams(self, phase: str) -> tuple[Stream, ...]:
        """Return what moves in a phase: each channel from every writer to every reader."""
        calls = [call for call in self.calls if call.phase == phase]
        return tuple(
            Stream(phase, channel, what, source, target)
            for source in calls
            for channel, what in source.writes
            for target in calls
            if channel in dict(target.reads)
        )


# --- the runtime ----------------------------------------------------------------------------------


class TracedFuture:
    """Dry results by rank, there at once."""

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def wait(self) -> list[Any]:
        """Return the results."""
        return self._results

    def done(self) -> bool:
        """Return True."""
        return True

    def durations(self) -> list[float]:
        """Return zeros: nobody did anything."""
        return [0.0] * len(self._results)

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """Return the results."""
        yield
        return self._results


class TracedChannel:
    """A channel's name; a run's own code neither puts nor gets."""

    def __init__(self, name: str, spec: ChannelSpec) -> None:
        self.name, self.spec = name, spec

    def put(
        self, item: Any, key: Any = None, weight: float = 1.0, version: int | None = None
    ) -> None:
        """Refuse: only workers put."""
        raise RlinfError(f"a dry pass put an item into {self.name!r}; wanted workers to")

    def get(self, key: Any = None, version: int | None = None, timeout: float | None = None) -> Any:
        """Refuse: only workers get."""
        raise RlinfError(f"a dry pass got an item from {self.name!r}; wanted workers to")

    def get_batch(self, weight: float, key: Any = None, version: int | None = None) -> list[Any]:
        """Refuse: only workers get."""
        raise RlinfError(f"a dry pass got items from {self.name!r}; wanted workers to")

    def close(self) -> None:
        """Do nothing."""


class TracedGroup:
    """Notes the calls on one group."""

    def __init__(
        self, runtime: TracingRuntime, spec: WorkerSpec, size: int, interface: Interface
    ) -> None:
        self.name, self.size = spec.name, size
        self._runtime, self._interface = runtime, interface
        self._kept: dict[str, str] = {}

    def call(
        self, method: str, *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> TracedFuture:
        """Note a call and return its dry results."""
        known = self._interface.get(method)
        if known is None:
            near = did_you_mean(method, self._interface)
            raise RlinfError(f"the interface of {self.name} has no method {method!r}.{near}")
        arguments = {**dict(zip(known.parameters, args, strict=False)), **kwargs}
        if len(args) > len(known.parameters) or set(arguments) - set(known.parameters):
            raise RlinfError(
                f"{self.name}.{method} was called with {len(args)} arguments and {sorted(kwargs)}; "
                f"its interface has {list(known.parameters)}"
            )
        channels = {k: v.name for k, v in arguments.items() if isinstance(v, TracedChannel)}
        self._kept |= {name: channels[name] for name in known.keeps}
        there = {**self._kept, **channels}
        self._runtime.calls.append(
            Call(
                self._runtime.phase,
                self.name,
                method,
                tuple((there[name], name) for name in known.reads if name in there),
                tuple((there[name], name) for name in known.writes if name in there),
                {k: v for k, v in arguments.items() if k not in channels},
            )
        )
        result = known.result(arguments) if callable(known.result) else known.result
        chosen = range(self.size) if ranks is None else ranks
        return TracedFuture([result if rank in chosen else None for rank in range(self.size)])


class TracingRuntime:
    """Notes what a run does; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        interfaces: target of a worker to its interface.
    """

    def __init__(self, interfaces: Mapping[str, Interface]) -> None:
        self._interfaces = interfaces
        self._groups: list[Group] = []
        self._channels: dict[str, TracedChannel] = {}
        self.calls: list[Call] = []
        self.phase = "start"

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Say which part of the run is traced."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def reserve(self, places: Iterable[GroupPlace]) -> None:
        """Do nothing: a dry pass needs no device."""

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> TracedGroup:
        """Note a group."""
        size = len(placement) or processes
        self._groups.append(Group(spec.name, size, spec.target, placement))
        return TracedGroup(self, spec, size, self._interfaces[spec.target])

    def channel(self, name: str, spec: ChannelSpec | None = None) -> TracedChannel:
        """Return the channel of that name."""
        return self._channels.setdefault(name, TracedChannel(name, spec or ChannelSpec()))

    def spans(self) -> list[Span]:
        """Return nothing: nobody did anything."""
        return []

    def recover(self) -> list[tuple[str, int]]:
        """Return nothing: nobody failed."""
        return []

    def interrupt(self) -> None:
        """Do nothing: a dry pass never waits."""

    def close(self) -> None:
        """Do nothing: nothing was started."""

    @property
    def graph(self) -> Graph:
        """What was noted so far."""
        return Graph(tuple(self._groups), tuple(self.calls))
