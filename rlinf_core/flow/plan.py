"""The plan of a run: its flow mapped on its placement, before anything starts.

:func:`rlinf_core.runs.plan.make_plan` makes one; ``rlinf plan`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlinf_core.config.origins import leaves
from rlinf_core.config.validate import Run, to_plain
from rlinf_core.errors import ConfigError, Problem
from rlinf_core.flow.arrange import Arrangement
from rlinf_core.flow.memory import Pool
from rlinf_core.flow.trace import Graph
from rlinf_core.flow.transfers import Transfer
from rlinf_core.placement import Device, GroupPlace
from rlinf_core.plugins.resolve import describe
from rlinf_core.specs import Facts

SCHEMA_VERSION = 1

FIELDS = (
    "schema_version",
    "name",
    "mode",
    "devices",
    "groups",
    "stages",
    "flow",
    "transfers",
    "batch",
    "memory",
    "prediction",
    "assumed",
    "needs",
    "conventions",
    "values",
    "problems",
)
"""Keys of a plan's plain data; what cannot be said is null there."""

MODES: Mapping[str, str] = {
    "collocated": "all groups share the same devices",
    "disaggregated": "each group has devices of its own",
    "hybrid": "simulation and rollout have devices of their own, and training has all of them",
    "mixed": "some groups share devices and others do not",
}
"""How groups lie to one another, in words."""


@dataclass(frozen=True)
class Convention:
    """One way in which things are shown or taken, and who is responsible for it.

    Attributes:
        name: such as "image_rotation".
        given: what the simulator states; None where it says nothing.
        expected: what the model expects; None where it says nothing.
        owner: who brings it about: the simulator where it states it.
    """

    name: str
    given: str | None
    expected: str | None
    owner: str | None


@dataclass(frozen=True)
class Need:
    """A capability that one component needs of another, which declares it: a run was checked."""

    who: str
    capability: str
    of: str


@dataclass(frozen=True)
class Plan:
    """What would happen, and what is wrong.

    Attributes:
        run: the run.
        arrangement: where groups go; None where that cannot be said.
        graph: the traced flow; None likewise, as are the others.
        transfers: what moves in one iteration.
        batch: the arithmetic of one iteration.
        pools: memory, and who keeps what there.
        problems: what is wrong; a run with any is refused.
        prediction: how long an iteration takes, as plain data; None where nothing was measured.
    """

    run: Run
    arrangement: Arrangement | None
    graph: Graph | None
    transfers: tuple[Transfer, ...]
    batch: Mapping[str, Any] | None
    pools: tuple[Pool, ...]
    problems: tuple[Problem, ...]
    prediction: Mapping[str, Any] | None = None

    def raise_any(self) -> None:
        """Raise what is wrong, if anything.

        Raises:
            ConfigError: with every problem.
        """
        if self.problems:
            raise ConfigError(self.problems)

    def as_json(self) -> dict[str, Any]:
        """Return plain data with its ``schema_version``."""
        arrangement, graph = self.arrangement, self.graph
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.run.config.name,
            "mode": mode(arrangement) if arrangement else None,
            "devices": [asdict(d) for d in arrangement.devices] if arrangement else None,
            "groups": groups_json(graph) if graph else None,
            "stages": arrangement.stages if arrangement else None,
            "flow": flow_json(graph) if graph else None,
            "transfers": [t.as_json() for t in self.transfers] if graph else None,
            "batch": self.batch,
            "memory": [pool.as_json() for pool in self.pools] if arrangement else None,
            "prediction": self.prediction,
            "assumed": self.run.assumed.as_json() if self.run.assumed else None,
            "needs": [asdict(need) for need in needs(self.run)],
            "conventions": [asdict(convention) for convention in conventions(self.run)],
            "values": values(self.run),
            "problems": [problem_json(problem) for problem in self.problems],
        }


def refused_json(problems: tuple[Problem, ...]) -> dict[str, Any]:
    """Return the plain data of a run that could not even be read."""
    nothing: dict[str, Any] = dict.fromkeys(FIELDS)
    told = [problem_json(problem) for problem in problems]
    return {**nothing, "schema_version": SCHEMA_VERSION, "problems": told}


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain data."""
    return asdict(problem) | {"suggestions": list(problem.suggestions)}


def mode(arrangement: Arrangement) -> str:
    """Return how a run's groups lie to one another: a key of :data:`MODES`."""
    sets = {name: devices_of(group) for name, group in arrangement.groups.items()}
    simulation, rollout = sets["simulation"], sets["rollout"]
    training = sets.get("training", rollout)
    if simulation == rollout == training:
        return "collocated"
    if simulation & rollout:
        return "mixed"
    if training == simulation | rollout:
        return "hybrid"
    return "mixed" if training & (simulation | rollout) else "disaggregated"


def devices_of(group: GroupPlace) -> set[Device]:
    """Return every device of a group."""
    return {device for process in group for device in process.devices}


def groups_json(graph: Graph) -> list[dict[str, Any]]:
    """Return groups as plain data: one entry per process, with its devices."""
    return [
        {
            "name": group.name,
            "target": group.target,
            "processes": [
                {
                    "rank": rank,
                    "devices": [device.index for device in process.devices],
                    "environment": dict(process.environment),
                }
                for rank, process in enumerate(group.place)
            ],
        }
        for group in graph.groups
    ]


def flow_json(graph: Graph) -> list[dict[str, Any]]:
    """Return the calls of a flow, in order, with the channels that they read and write."""
    return [
        {
            "phase": call.phase,
            "group": call.group,
            "method": call.method,
            "reads": [channel for channel, _ in call.reads],
            "writes": [channel for channel, _ in call.writes],
        }
        for call in graph.calls
    ]


def needs(run: Run) -> list[Need]:
    """Return every capability that a component of the run needs of another."""
    return [
        Need(describe(chosen.component), str(capability), describe(other.component))
        for chosen in run.components.values()
        for kind, needed in chosen.component.spec.needs.items()
        for capability in sorted(needed)
        for other in run.components.values()
        if other.component.kind is kind
    ]


def conventions(run: Run) -> list[Convention]:
    """Return every convention that the simulator or the model names."""
    given = run.facts.get("simulator", Facts()).conventions
    expected = run.facts.get("model", Facts()).conventions
    return [
        Convention(
            name,
            given.get(name),
            expected.get(name),
            describe(run.components["simulator"].component) if name in given else None,
        )
        for name in sorted(given.keys() | expected.keys())
    ]


def values(run: Run) -> dict[str, dict[str, Any]]:
    """Return every value of a run by its dotted path, and where it came from."""
    return {
        path: {"value": value, "origin": run.origins[path]} for path, value in leaves(to_plain(run))
    }
