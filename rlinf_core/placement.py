"""Placement: which devices each group of workers gets, and in how many processes.

What a person writes in a run file, one line per group or for several groups at once::

    cluster: {devices: 4 x cpu}
    placement:
      simulation: 0-1          # two processes, one per device
      rollout: "2:2"           # two processes share device 2
      training: "all:1"        # one process has all four

is turned into a :data:`GroupPlace` per group. Plain arithmetic, without torch: ``rlinf plan`` and
the checks of a run file use it, and so does the session that starts the groups. The grammar::

    component[,component]...: resources[:processes]
    resources = part[,part]...        part = [label/]NUMBER | [label/]FIRST-LAST | [label/]all

Numbers count the run's devices from 0; behind a node group's label, that group's devices from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from rlinf_core.errors import Problem, did_you_mean

COMPONENTS = ("simulation", "rollout", "training")
"""The groups that a placement names. Evaluation and recording go where simulation is."""

MOST_PROCESSES, MOST_DEVICES = 10_000, 100_000
"""Upper bounds, far above what anybody runs: they catch what would fill the memory."""


@dataclass(frozen=True)
class Device:
    """One device of a run: an accelerator, or a slot of a CPU that the run file declares.

    Attributes:
        kind: name of the accelerator component, such as "cpu" or "cuda".
        index: its number among the run's devices, from 0; node groups count on from one another.
        local: its number on its own machine and of its own kind, from 0.
        torch_name: what torch calls it: "cpu", "cuda:0".
        node: label of its node group; "" where the run declares none.
    """

    kind: str
    index: int
    local: int
    torch_name: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.node}/{self.kind}:{self.index}" if self.node else f"{self.kind}:{self.index}"


@dataclass(frozen=True)
class ProcessPlace:
    """Where one process of a group runs.

    Attributes:
        devices: the devices it may use; the first is the one that its tensors live on.
        environment: variables on top of the driver's, from its node group.
    """

    devices: tuple[Device, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


GroupPlace = tuple[ProcessPlace, ...]
"""Where a group runs: one entry per process, by rank."""


class Part(NamedTuple):
    """Some devices: those of ``numbers``, or all; of one node group, or of the run."""

    label: str
    numbers: range | None


class Entry(NamedTuple):
    """One line of a placement, read: components, their devices and number of processes."""

    key: str
    components: tuple[str, ...]
    parts: tuple[Part, ...]
    processes: int | None
    resources: str

    @property
    def path(self) -> str:
        """Dotted path of the line in a run file."""
        return f"placement.{self.key}"


_PART = re.compile(r"(?:(?P<label>[^/,:\s]+)/)?(?:(?P<all>all)|(?P<first>\d+)(?:-(?P<last>\d+))?)")

WANTED = (
    "wanted devices such as '0', '0-3', '0,2,5-6', 'all' or 'LABEL/0-1', and with a number of "
    "processes '0-3:2'"
)


class _Wrong(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def parse_placement(placement: Mapping[str, str]) -> tuple[list[Entry], list[Problem]]:
    """Read a placement, whatever devices there are; return its lines and what is wrong."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    placed: dict[str, str] = {}
    for key, value in placement.items():
        path = f"placement.{key}"
        components = tuple(part.strip() for part in key.split(","))
        for name in components:
            if name not in COMPONENTS:
                near = did_you_mean(name, COMPONENTS)
                text = f"there is no component {name!r} to place.{near}"
                problems.append(Problem(path, text, f"wanted {_listed(COMPONENTS)}"))
            elif name in placed:
                text = f"{name} is placed twice, here and in placement.{placed[name]}"
                problems.append(Problem(path, text, "wanted one place for each component"))
            placed.setdefault(name, key)
        try:
            entries.append(_entry(key, components, value.strip()))
        except _Wrong as wrong:
            problems.append(wrong.problem)
    return entries, problems


def _entry(key: str, components: tuple[str, ...], text: str) -> Entry:
    path = f"placement.{key}"
    resources, colon, count = (part.strip() for part in text.partition(":"))
    parts = []
    for piece in resources.split(","):
        match = _PART.fullmatch(piece.strip())
        if match is None:
            what = f"found {text!r}" + (f" with {piece.strip()!r}" if "," in resources else "")
            raise _Wrong(Problem(path, what, WANTED))
        label, first, last = match["label"] or "", match["first"], match["last"] or match["first"]
        if match["all"]:
            parts.append(Part(label, None))
        elif max(len(first), len(last)) > len(str(MOST_DEVICES - 1)):
            raise _Wrong(Problem(path, f"found {text!r}", f"wanted numbers below {MOST_DEVICES}"))
        elif int(last) < int(first):
            what = f"the range {piece.strip()} is reversed and holds no device"
            line = suggest(path, re.sub(r"\d+-\d+", _ascending, resources) + colon + count)
            wanted = f"wanted {last}-{first}"
            raise _Wrong(Problem(path, what, wanted, (line,)))
        else:
            parts.append(Part(label, range(int(first), int(last) + 1)))
    if not colon:
        return Entry(key, components, tuple(parts), None, resources)
    if not (re.fullmatch(r"\d{1,9}", count) and 1 <= int(count) <= MOST_PROCESSES):
        wanted = f"wanted a number of processes from 1 to {MOST_PROCESSES} after the colon"
        raise _Wrong(Problem(path, f"found {text!r}", wanted, (suggest(path, f"{resources}:1"),)))
    return Entry(key, components, tuple(parts), int(count), resources)


def _ascending(match: re.Match[str]) -> str:
    return "-".join(sorted(match[0].split("-"), key=int))


def place(
    entries: Iterable[Entry],
    devices: Sequence[Device],
    needed: Iterable[str] = COMPONENTS,
    environments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[dict[str, GroupPlace], list[Problem]]:
    """Return the place of each component, and what is wrong.

    Args:
        entries: what :func:`parse_placement` read.
        devices: the run's devices, by index.
        needed: components that must have a place.
        environments: node group's label to the variables of its processes.
    """
    groups: dict[str, GroupPlace] = {}
    problems: list[Problem] = []
    for entry in entries:
        try:
            group = _group(entry, devices, environments)
        except _Wrong as wrong:
            problems.append(wrong.problem)
            group = ()
        groups |= dict.fromkeys(entry.components, group)
    for name in needed:
        if name not in groups:
            text = f"{name} has no place; found one for {_listed(groups) or 'nothing'}"
            wanted = "wanted a place for each component, such as"
            line = suggest(f"placement.{name}", "all:1")
            problems.append(Problem("placement", text, f"{wanted} {line}", (line,)))
    return groups, problems


def collocated(
    devices: Sequence[Device], environment: Mapping[str, str] = MappingProxyType({})
) -> dict[str, GroupPlace]:
    """Return the place of every component where a run gives none: one process has all devices."""
    return dict.fromkeys(COMPONENTS, (ProcessPlace(tuple(devices), environment),))


def _group(
    entry: Entry,
    devices: Sequence[Device],
    environments: Mapping[str, Mapping[str, str]],
) -> GroupPlace:
    chosen: list[Device] = []
    for part in entry.parts:
        for device in _of_part(entry, part, devices):
            if device in chosen:
                text = f"{entry.resources!r} names device {device} twice"
                raise _Wrong(Problem(entry.path, text, "wanted each device once"))
            chosen.append(device)
    count, processes = len(chosen), entry.processes or len(chosen)
    if processes % count and count % processes:
        works = [n for n in range(1, 2 * count + 1) if n % count == 0 or count % n == 0]
        raise _Wrong(
            Problem(
                entry.path,
                f"{processes} processes cannot share {count} devices evenly",
                f"wanted a divisor or a multiple of {count}: {_listed(map(str, works))}",
                tuple(suggest(entry.path, f"{entry.resources}:{n}") for n in works),
            )
        )
    wide, deep = max(1, count // processes), max(1, processes // count)
    places = []
    for rank in range(processes):
        mine = tuple(chosen[rank // deep * wide : rank // deep * wide + wide])
        labels = sorted({device.node for device in mine})
        if len(labels) > 1:
            text = f"one process would have devices of the node groups {_listed(labels)}"
            line = suggest(entry.path, entry.resources)
            wanted = f"wanted each process within one node group, such as {line}"
            raise _Wrong(Problem(entry.path, text, wanted, (line,)))
        places.append(ProcessPlace(mine, environments.get(labels[0], MappingProxyType({}))))
    return tuple(places)


def _of_part(entry: Entry, part: Part, devices: Sequence[Device]) -> list[Device]:
    there = [d for d in devices if part.label in ("", d.node)]
    prefix = f"{part.label}/" if part.label else ""
    if not there:
        labels = sorted({device.node for device in devices} - {""})
        near = did_you_mean(part.label, labels)
        raise _Wrong(
            Problem(
                entry.path,
                f"there is no node group {part.label!r}.{near}",
                f"wanted one of cluster.node_groups, which has {_listed(labels) or 'none'}",
            )
        )
    if part.numbers is None:
        return there
    if part.numbers[-1] >= len(there):
        missing = next(n for n in part.numbers if n >= len(there))
        has = f"the node group {part.label!r}" if part.label else "this run"
        last = f"-{len(there) - 1}" if len(there) > 1 else ""
        raise _Wrong(
            Problem(
                entry.path,
                f"there is no device {prefix}{missing}; {has} has {len(there)}: {_devices(there)}",
                f"wanted {prefix}0{last}, or more in cluster.devices",
                (suggest(entry.path, f"{prefix}0{last}"), suggest(entry.path, f"{prefix}all")),
            )
        )
    return [there[number] for number in part.numbers]


def suggest(path: str, value: object) -> str:
    """Return an override that sets a value, quoted where the command line needs it."""
    text = str(value)
    return f"{path}={text!r}" if re.search(r"[,\s]", text) else f"{path}={text}"


def _devices(devices: Sequence[Device]) -> str:
    shown = [str(device) for device in devices[:8]]
    return ", ".join(shown) + (", ..." if len(devices) > 8 else "")


def _listed(names: Iterable[str]) -> str:
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
