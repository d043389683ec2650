"""What moves between groups in one iteration: how much, how often, and by which way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.flow.arrange import Arrangement
from rlinf_core.flow.sizes import Size, action_size, observation_size
from rlinf_core.flow.trace import Graph, Stream
from rlinf_core.placement import Device
from rlinf_core.protocols.accelerator import Accelerator
from rlinf_core.specs import Facts


@dataclass(frozen=True)
class Scale:
    """The numbers that decide how much moves.

    Attributes:
        envs: environments of the whole run.
        steps: steps of one iteration, each of one chunk.
        chunk: actions per chunk.
        streams: stages of all simulation processes.
        receivers: processes that read.
        observation: one environment's observation.
        action: one environment's action.
        act: what one row of ``act`` gives to be trained on.
        values: whether it gives a value, and so a next one.
        weights: the policy's weights.
        optimizer_steps: of one iteration, at most.
    """

    envs: int
    steps: int
    chunk: int
    streams: int
    receivers: int
    observation: Size
    action: Size
    act: Size
    values: bool
    weights: Size
    optimizer_steps: int


@dataclass(frozen=True)
class Traffic:
    """What goes through one channel in one iteration.

    Attributes:
        items: number of items.
        item: size of the largest.
        total: size of all.
        resident: whether it lies on the writer's device; else in host memory.
        note: what comes on top.
    """

    items: int
    item: Size
    total: Size
    resident: bool = False
    note: str = ""


@dataclass(frozen=True)
class Transfer:
    """One channel between two groups."""

    channel: str
    source: str
    target: str
    traffic: Traffic
    transport: str

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "channel": self.channel,
            "from": self.source,
            "to": self.target,
            "items": self.traffic.items,
            "item": self.traffic.item.as_json(),
            "iteration": self.traffic.total.as_json(),
            "transport": self.transport,
            "note": self.traffic.note or None,
        }


def transfers(
    run: Run,
    arrangement: Arrangement,
    graph: Graph,
    phase: str,
    contents: Mapping[str, Callable[[Scale], Traffic]],
) -> list[Transfer]:
    """Return what moves in a phase of the flow.

    Args:
        contents: name of a channel as its writer knows it, to what goes through.
    """
    found = []
    for stream in graph.streams(phase):
        scale = _scale(run, arrangement, graph.group(stream.target.group).size)
        traffic = contents[stream.what](scale)
        way = _ways(run, arrangement, graph, stream, traffic.resident)
        names = (stream.channel, stream.source.group, stream.target.group)
        found.append(Transfer(*names, traffic, way))
    return found


def _scale(run: Run, arrangement: Arrangement, receivers: int) -> Scale:
    simulator, model = run.facts.get("simulator", Facts()), run.facts.get("model", Facts())
    collect, update = run.config.collect, run.config.update
    return Scale(
        envs=collect.envs,
        steps=collect.steps,
        chunk=collect.chunk,
        streams=len(arrangement.groups["simulation"]) * arrangement.stages,
        receivers=receivers,
        observation=observation_size(simulator),
        action=action_size(simulator),
        act=Size.of(model.act_bytes, "what act() returns to be trained on"),
        values=run.can("model", Capability.VALUE),
        weights=Size.of(model.bytes, "weights"),
        optimizer_steps=update.epochs * -(-collect.envs * collect.steps // update.minibatch_size),
    )


def _ways(run: Run, arrangement: Arrangement, graph: Graph, stream: Stream, resident: bool) -> str:
    """Return the ways between the processes of two groups, each once."""
    if not run.can("runtime", Capability.PROCESSES):
        return REFERENCE
    ends = [graph.group(call.group).place for call in (stream.source, stream.target)]
    pairs = [(s.devices[0], t.devices[0]) for s in ends[0] for t in ends[1]]
    ways = [way(s, t, arrangement.accelerators) if resident else SHARED for s, t in pairs]
    return " or ".join(dict.fromkeys(ways))


REFERENCE, SHARED, HANDLE, GLOO = "reference", "shared memory", "device handle", "gloo"
"""Within one process; through host memory; through a handle to device memory; over a network."""


def way(source: Device, target: Device, accelerators: Mapping[str, Accelerator]) -> str:
    """Return how a tensor gets from one process's device to another's, on one machine."""
    cpus = [accelerators[device.kind].torch_name == "cpu" for device in (source, target)]
    if all(cpus):
        return SHARED
    if source == target:
        return HANDLE
    if source.kind == target.kind:
        return accelerators[source.kind].collective
    return GLOO
