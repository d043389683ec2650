"""Arranging a run: which devices it has, where each group goes, and in how many pipeline stages.

The one place where a placement meets the machine. What is wrong comes as a list of problems, which
``rlinf plan`` prints and a run that starts raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlinf_core.capability import Capability
from rlinf_core.config.arithmetic import Numbers, check
from rlinf_core.config.schema import RunConfig
from rlinf_core.config.validate import Run
from rlinf_core.devices import Supply, Wish, declared, make_devices, parse_devices
from rlinf_core.errors import ConfigError, Problem
from rlinf_core.placement import (
    COMPONENTS,
    Device,
    Entry,
    GroupPlace,
    collocated,
    parse_placement,
    place,
    suggest,
)
from rlinf_core.plugins.resolve import describe, load
from rlinf_core.protocols.accelerator import Accelerator
from rlinf_core.specs import Component, Facts, Kind


@dataclass(frozen=True)
class Arrangement:
    """Where a run's groups go.

    Attributes:
        devices: the run's devices, by index.
        groups: component to its place: one entry per process, by rank.
        stages: pipeline stages of each simulation process.
        accelerators: kind of device to what speaks for it.
    """

    devices: tuple[Device, ...]
    groups: Mapping[str, GroupPlace]
    stages: int
    accelerators: Mapping[str, Accelerator]

    def beside_simulation(self, most: int) -> GroupPlace:
        """Return places where simulation is, in at most so many processes."""
        return self.groups["simulation"][: max(1, most)]


def arrange(run: Run) -> tuple[Arrangement | None, list[Problem]]:
    """Return where a run's groups go on this machine, and what is wrong; None where too much is."""
    devices, accelerators, problems = _devices(run)
    config = run.config
    components = [c for c in COMPONENTS if c != "training" or "training" in run.components]
    entries: list[Entry] = []
    groups = collocated(devices)
    if config.placement is not None and not problems:
        assert not isinstance(config.placement, str)  # a run that says "auto" was refused
        entries, problems = parse_placement(config.placement)
        labels = {label: group.environment for label, group in config.cluster.node_groups.items()}
        groups, more = place(entries, devices, components, labels)
        problems = [*problems, *more]
    elif len({device.node for device in devices}) > 1:
        text = "the run has several node groups, and nothing says who goes where"
        wanted = "wanted a place for each component, such as"
        line = suggest("placement.simulation", f"{devices[0].node}/0")
        problems.append(Problem("placement", text, f"{wanted} {line}"))
    elif devices and devices[0].node:
        environment = config.cluster.node_groups[devices[0].node].environment
        groups = collocated(devices, environment)
    if problems:
        return None, [run.located(problem) for problem in problems]
    groups = {name: groups[name] for name in components}
    algorithm = run.facts.get("algorithm", Facts())
    group_size = algorithm.group_size
    stages = choose_stages(config, groups, group_size)
    problems = _distributed(run, entries, groups)
    ranks = {name: len(group) for name, group in groups.items()}
    if problems:
        ranks["training"] = 1  # as it would have to be
    sizes = {name: len(_devices_of(group)) for name, group in groups.items()}
    lines = [(e, sizes[e.components[0]]) for e in entries if sizes.keys() >= set(e.components)]
    collect = config.collect.model_copy(update={"stages": stages})
    resolved = config.model_copy(update={"collect": collect})
    numbers = Numbers(resolved, group_size, ranks, lines, algorithm.piecewise)
    problems += check(numbers, "training" in groups)
    arrangement = Arrangement(devices, groups, stages, accelerators)
    return arrangement, [run.located(problem) for problem in problems]


def arranged(run: Run) -> Arrangement:
    """Return where a run's groups go.

    Raises:
        ConfigError: its placement does not fit this machine, or its numbers not the placement.
    """
    arrangement, problems = arrange(run)
    if problems or arrangement is None:
        raise ConfigError(problems)
    return arrangement


def choose_stages(config: RunConfig, groups: Mapping[str, GroupPlace], group_size: int) -> int:
    """Return the pipeline stages of each simulation process: those given, or the planner's choice.

    With devices of their own, simulation and rollout overlap if there are two stages; on the same
    devices there is nothing to overlap. Every rollout process must have a stream to serve, and
    every stage the same number of whole groups of environments.
    """
    if config.collect.stages is not None:
        return config.collect.stages
    simulation, rollout = groups["simulation"], groups["rollout"]
    apart = not _devices_of(simulation) & _devices_of(rollout)
    needed = -(-len(rollout) // len(simulation))
    unit = len(simulation) * group_size
    fits = [s for s in range(1, 1001) if config.collect.envs % (unit * s) == 0 and s >= needed]
    best = max(needed, 2 if apart else 1)
    return best if best in fits else min(fits, default=1)


def _devices_of(group: GroupPlace) -> set[Device]:
    return {device for process in group for device in process.devices}


def _devices(run: Run) -> tuple[tuple[Device, ...], Mapping[str, Accelerator], list[Problem]]:
    """Return the run's devices, what speaks for each kind, and what is wrong."""
    cluster = run.config.cluster
    asked = {
        label: (f"node_groups.{label}.devices", group.devices)
        for label, group in cluster.node_groups.items()
    } or {"": ("devices", cluster.devices)}
    accelerators: dict[str, Accelerator] = {}
    wishes = {}
    for label, (key, text) in asked.items():
        wish = parse_devices(f"cluster.{key}", text)
        assert isinstance(wish, Wish)  # the run was checked
        if key in run.components:
            candidates: tuple[Component, ...] = (run.components[key].component,)
            wish = wish._replace(kind=candidates[0].spec.name)
        else:  # the best there is
            candidates = run.registry.components(Kind.ACCELERATOR)
        accelerators |= {c.spec.name: load(c)() for c in candidates}
        wishes[label] = (f"cluster.{key}", wish)
    best_first = sorted(accelerators.items(), key=lambda item: item[1].torch_name == "cpu")
    supplies = {name: Supply(a.torch_name, a.count()) for name, a in best_first}
    if run.can("runtime", Capability.CLUSTER):  # which looks for them itself when a run starts
        supplies = declared(wishes, supplies)
    devices, problems = make_devices(wishes, supplies)
    return devices, accelerators, problems


def _distributed(run: Run, entries: list[Entry], groups: Mapping[str, GroupPlace]) -> list[Problem]:
    """Refuse several training processes of a backend that trains in one."""
    ranks = len(groups.get("training", ()))
    if ranks < 2 or run.can("training", Capability.DISTRIBUTED):
        return []
    entry = next(e for e in entries if "training" in e.components)
    line = suggest(entry.path, f"{entry.resources}:1")
    who = describe(run.components["training"].component)
    text = f"training in {ranks} processes needs the capability 'distributed', which {who} does not"
    wanted = f"wanted one process that has all the devices, training: all:1, here {line}"
    return [Problem(entry.path, f"{text} declare", wanted, (line,))]
