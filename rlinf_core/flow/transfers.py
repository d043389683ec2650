"""What moves between groups in one iteration: how much, how often, and by which way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.errors import Problem, WeightSyncError
from rlinf_core.flow.arrange import Arrangement
from rlinf_core.flow.sizes import Size, action_size, observation_size
from rlinf_core.flow.trace import Graph, Stream
from rlinf_core.placement import Device
from rlinf_core.protocols.accelerator import opens_handles
from rlinf_core.specs import Facts
from rlinf_core.transport.ways import AUTO, Endpoint, choose_way, detour


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
        way: by which weights are to go.
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
    way: str = AUTO


@dataclass(frozen=True)
class Traffic:
    """What goes through one channel in one iteration.

    Attributes:
        items: number of items.
        item: size of the largest.
        total: size of all.
        resident: whether it lies on the writer's device; else in host memory.
        note: what comes on top.
        way: by which it is to go.
    """

    items: int
    item: Size
    total: Size
    resident: bool = False
    note: str = ""
    way: str = AUTO


class Leg(NamedTuple):
    """By which way something goes, and why it takes a detour; "" where it does not."""

    way: str
    why: str = ""


@dataclass(frozen=True)
class Transfer:
    """One channel between two groups; ``legs`` are the ways between their processes, each once."""

    channel: str
    source: str
    target: str
    traffic: Traffic
    legs: tuple[Leg, ...]

    @property
    def transport(self) -> str:
        """The ways, in words."""
        return " or ".join(dict.fromkeys(leg.way for leg in self.legs))

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
            "ways": [{"way": leg.way, "why": leg.why or None} for leg in self.legs],
            "note": self.traffic.note or None,
        }


def transfers(
    run: Run,
    arrangement: Arrangement,
    graph: Graph,
    phase: str,
    contents: Mapping[str, Callable[[Scale], Traffic] | None],
) -> tuple[list[Transfer], list[Problem]]:
    """Return what moves in a phase of the flow, and what is wrong with the way that it is to take.

    Args:
        contents: name of a channel as its writer knows it, to what goes through; None where that
            is not worth telling.
    """
    found, problems = [], []
    for stream in graph.streams(phase):
        measure = contents[stream.what]
        if measure is None:
            continue
        traffic = measure(_scale(run, arrangement, graph.group(stream.target.group).size))
        legs, wrong = _legs(run, arrangement, graph, stream, traffic)
        if wrong:
            problems.append(Problem("weights.way", wrong, "", (f"weights.way={AUTO}",)))
        names = (stream.channel, stream.source.group, stream.target.group)
        found.append(Transfer(*names, traffic, legs))
    return found, problems


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
        way=getattr(run.components["weights"].config, "way", AUTO),
    )


def _legs(
    run: Run, arrangement: Arrangement, graph: Graph, stream: Stream, traffic: Traffic
) -> tuple[tuple[Leg, ...], str]:
    """Return the ways between the processes of two groups, each once, and what is wrong."""
    apart = run.can("runtime", Capability.PROCESSES)
    sources, targets = (
        [
            _endpoint(process.devices[0], f"{group}[{rank}]", apart, traffic, arrangement)
            for rank, process in enumerate(graph.group(group).place)
        ]
        for group in (stream.source.group, stream.target.group)
    )
    pairs = [(source, target) for source in sources for target in targets]
    try:
        ways = [(choose_way(*pair, traffic.way), pair) for pair in pairs]
    except WeightSyncError as error:
        return (Leg(traffic.way),), str(error)
    legs = (Leg(way.shown(pair[0]), detour(way, *pair)) for way, pair in ways)
    return tuple(dict.fromkeys(legs)), ""


def _endpoint(
    device: Device, name: str, apart: bool, traffic: Traffic, arrangement: Arrangement
) -> Endpoint:
    """Return where a process is; what is not on its device is in its machine's memory."""
    process, host = (name if apart else ""), arrangement.machine(device)
    if not traffic.resident:
        return Endpoint(name, host, process)
    kind = arrangement.accelerators[device.kind]
    return Endpoint(
        name,
        host,
        process,
        torch_name=kind.torch_name,
        device=str(device),
        collective=kind.collective,
        kind=device.kind,
        handles=opens_handles(kind),
    )
