"""Arranging a run: which devices it has, where each group goes, and in how many pipeline stages.

The one place where a placement meets the machine. What is wrong comes as a list of problems, which
``rlinf plan`` prints and a run that starts raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from rlinf_core.capability import Capability
from rlinf_core.config.arithmetic import Numbers, check
from rlinf_core.config.schema import RunConfig
from rlinf_core.config.validate import Run
from rlinf_core.devices import (
    Assumed,
    Supply,
    Wish,
    declared,
    make_devices,
    parse_assumed,
    parse_devices,
)
from rlinf_core.errors import ConfigError, PluginError, Problem, RequestError, did_you_mean
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
from rlinf_core.protocols.accelerator import Accelerator, needed_build
from rlinf_core.specs import Component, Facts, Kind
from rlinf_core.torch_build import torch_build


@dataclass(frozen=True)
class Arrangement:
    """Where a run's groups go.

    Attributes:
        devices: the run's devices, by index.
        groups: component to its place: one entry per process, by rank.
        stages: pipeline stages of each simulation process.
        accelerators: kind of device to what speaks for it.
        assumed: the devices that a plan takes for granted; None for those of this machine.
        cluster: whether the runtime looks for devices on other machines, one or more for each
            node group.
    """

    devices: tuple[Device, ...]
    groups: Mapping[str, GroupPlace]
    stages: int
    accelerators: Mapping[str, Accelerator]
    assumed: Assumed | None = None
    cluster: bool = False

    def machine(self, device: Device) -> str:
        """Return the machine that a device belongs to; "" where there is only one."""
        apart = self.cluster if self.assumed is None else self.assumed.apart
        return device.node if apart else ""

    def memory(self, device: Device) -> int | None:
        """Return a device's memory in bytes; None where nothing tells."""
        if self.assumed is not None:
            return self.assumed.memory(device.kind, device.node)
        if self.cluster:
            return None
        return self.accelerators[device.kind].memory(device.local)

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
    cluster = run.can("runtime", Capability.CLUSTER)
    arrangement = Arrangement(devices, groups, stages, accelerators, run.assumed, cluster)
    return arrangement, [run.located(problem) for problem in problems]


def assuming(run: Run, text: str) -> Run:
    """Return a run whose plan takes devices for granted, such as ``8 x cuda of 80 GB``.

    Raises:
        RequestError: it is no such text, or names a kind of device or a node group there is not.
    """
    assumed = parse_assumed(text)
    labels = run.config.cluster.node_groups
    there = {}
    for (label, kind), what in assumed.there.items():
        name = run.registry.component(Kind.ACCELERATOR, kind).spec.name
        there[label, name] = what
        if label and label not in labels:
            raise RequestError(
                f"--assume-devices: there is no node group {label!r}.{did_you_mean(label, labels)} "
                f"cluster.node_groups has {', '.join(labels) or 'none'}"
            )
    return replace(run, assumed=Assumed(there))


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
            named = run.components[key].component
            wish = wish._replace(kind=named.spec.name)
            accelerators[named.spec.name] = load(named)()
        else:  # the best there is
            accelerators |= _loadable(run.registry.components(Kind.ACCELERATOR))
        wishes[label] = (f"cluster.{key}", wish)
    best_first = sorted(accelerators.items(), key=lambda item: item[1].torch_name == "cpu")
    if run.assumed is None:
        elsewhere = run.can("runtime", Capability.CLUSTER)  # it looks for them when a run starts
        build = "" if elsewhere else torch_build()
        there = {name: _supply(kind, kind.count(), build) for name, kind in best_first}
        if elsewhere:
            there = declared(wishes, there)
        devices, problems = make_devices(wishes, there)
        return devices, accelerators, problems
    made: list[Device] = []
    problems = []
    apart = [{label: wish} for label, wish in wishes.items()]
    for some in apart if run.assumed.apart else [wishes]:
        (label, *_) = some
        there = {name: _supply(a, run.assumed.number(name, label)) for name, a in best_first}
        devices, wrong = make_devices(some, there, "the assumed machine")
        made += [replace(d, index=len(made) + number) for number, d in enumerate(devices)]
        problems += wrong
    return tuple(made), accelerators, problems


def _loadable(components: Iterable[Component]) -> dict[str, Accelerator]:
    """Return the accelerators that can be loaded: one that cannot is not there for "auto"."""
    found: dict[str, Accelerator] = {}
    for component in components:
        with suppress(PluginError):
            found[component.spec.name] = load(component)()
    return found


def _supply(accelerator: Accelerator, number: int, build: str = "") -> Supply:
    """Return what a machine has of a kind, with a torch of some build; "" where any would do."""
    name, needed = accelerator.torch_name, needed_build(accelerator)
    if name == "cpu":
        return Supply(name, max(number, 1))
    if needed and build and build.split()[0] != needed:
        text = f"torch here is built for {_in_words(build)}, and not for {_in_words(needed)}"
        return Supply(name, number, text)
    return Supply(name, number)


def _in_words(build: str) -> str:
    return "the CPU" if build == "cpu" else build


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
