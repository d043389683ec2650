"""Whether what groups keep on their devices fits, and whether they take turns there.

Each accelerator is a pool of memory of its own. The slots of a processor are one pool together, the
machine's memory: a slot is a share of the work, not of the memory. What no fact gives is unknown,
so a plan says that something does not fit only where the known parts alone are too much.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.errors import Problem
from rlinf_core.flow.arrange import Arrangement, arrange
from rlinf_core.flow.sizes import Size, in_words
from rlinf_core.placement import Device, parse_placement, suggest
from rlinf_core.plugins.resolve import describe
from rlinf_core.specs import Facts, Unknown

OWNERS: Mapping[str, str] = {
    "simulation": "simulator",
    "rollout": "rollout",
    "training": "training",
}
"""Component of a placement to the section whose component must offload for it."""


@dataclass(frozen=True)
class Pool:
    """The memory of one accelerator, or of the processor, and who keeps what there.

    Attributes:
        name: of the device, or the kind of the processor.
        devices: the devices that it serves.
        capacity: bytes, or None where nothing tells.
        parts: component to what it keeps, by what it is; of all its processes there.
        sharing: "alone", "resident" (all at once) or "turns".
    """

    name: str
    devices: tuple[Device, ...]
    capacity: int | None
    parts: Mapping[str, Mapping[str, Size]]
    sharing: str

    @property
    def in_host_memory(self) -> bool:
        """Whether it is the processor's."""
        return self.devices[0].torch_name == "cpu"

    def of(self, component: str) -> Size:
        """Return what one component keeps."""
        return sum(self.parts[component].values(), Size())

    @property
    def total(self) -> Size:
        """What all keep."""
        return sum((self.of(name) for name in self.parts), Size())

    @property
    def needed(self) -> Size:
        """What must be there at once: the largest share where groups take turns."""
        if self.sharing != "turns" or self.in_host_memory:
            return self.total
        return Size(max(self.of(name).known for name in self.parts), self.total.unknown)

    @property
    def fits(self) -> bool | None:
        """Whether that fits; None where it is not known."""
        if self.capacity is None:
            return None
        if self.needed.known > self.capacity:
            return False
        return None if self.needed.unknown else True

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "device": self.name,
            "devices": [device.index for device in self.devices],
            "capacity": self.capacity,
            "groups": {
                name: {part: size.as_json() for part, size in parts.items()}
                for name, parts in self.parts.items()
            },
            "needed": self.needed.as_json(),
            "sharing": self.sharing,
            "fits": self.fits,
        }


def memory(run: Run, arrangement: Arrangement) -> tuple[list[Pool], list[Problem]]:
    """Return every pool of a run, and what is wrong: what cannot take turns, what does not fit."""
    pools = [_shared(run, pool) for pool in _pools(run, arrangement)]
    problems = [*_turns(run, arrangement, pools)]
    if not problems:
        problems = [_too_small(run, pool) for pool in pools if pool.fits is False]
    return pools, [run.located(problem) for problem in problems]


# --- who keeps what -------------------------------------------------------------------------------


def _parts(
    run: Run, arrangement: Arrangement, component: str, rank: int, slots: bool
) -> dict[str, Size]:
    """Return what one process of a component keeps, by what it is; on a processor's slot or not."""
    facts = {key: run.facts.get(key, Facts()) for key in ("simulator", "model", "training")}
    weights = Size.of(facts["model"].bytes, "weights")
    if component == "simulation":
        told = Unknown("no fact states the host memory of a simulator")
        size = Size.of(told if slots else facts["simulator"].bytes, "simulators")
        evaluation = run.config.evaluation
        most = min(evaluation.envs or run.config.collect.envs, evaluation.episodes)
        evaluates = rank < len(arrangement.beside_simulation(most))
        return {
            "simulators": size * arrangement.stages,
            "simulators to evaluate": size * evaluates,
        }
    unknown = Unknown("depends on the batch, and no fact says how")
    parts = {"weights": weights}
    if component == "training":
        nothing = {"gradients and optimizer": Unknown("not stated")}
        kept = facts["training"].memory or nothing
        parts |= {name: Size.of(value, name) for name, value in kept.items()}
        spread = facts["training"].spread
        parts = {
            name: _share(size, len(arrangement.groups["training"]), spread, name)
            for name, size in parts.items()
        }
    return {**parts, "activations": Size.of(unknown, "activations")}


def _share(whole: Size, processes: int, spread: str | Unknown, name: str) -> Size:
    """Return what one of several training processes keeps of something."""
    if processes == 1 or spread == "whole":
        return whole
    if isinstance(spread, Unknown):
        return Size.of(Unknown(f"spread over {processes} processes, {spread.reason}"), name)
    return Size(-(-whole.known // processes), whole.unknown)


def _pools(run: Run, arrangement: Arrangement) -> Iterator[Pool]:
    """Yield every pool in which a process keeps its tensors."""
    used: dict[str, dict[str, dict[str, Size]]] = {}
    devices: dict[str, list[Device]] = {}
    for name, group in arrangement.groups.items():
        for rank, process in enumerate(group):
            device = process.devices[0]  # where its tensors live
            slots = arrangement.accelerators[device.kind].torch_name == "cpu"
            machine = arrangement.machine(device)
            shared = f"{machine}/{device.kind}" if machine else device.kind
            pool = shared if slots else str(device)
            there = [d for d in arrangement.devices if arrangement.machine(d) == machine]
            devices[pool] = [d for d in there if d.kind == device.kind] if slots else [device]
            mine = used.setdefault(pool, {}).setdefault(name, {})
            for part, size in _parts(run, arrangement, name, rank, slots).items():
                mine[part] = mine.get(part, Size()) + size
    for pool, uses in used.items():
        capacity = arrangement.memory(devices[pool][0])
        yield Pool(pool, tuple(devices[pool]), capacity, uses, "alone")


# --- turns ----------------------------------------------------------------------------------------


def _shared(run: Run, pool: Pool) -> Pool:
    """Return a pool with the way in which its groups share it."""
    if len(pool.parts) < 2:
        return pool
    asked = run.config.cluster.sharing
    if asked == "auto":
        if pool.in_host_memory:  # what is offloaded from there goes there
            return replace(pool, sharing="resident")
        full = pool.capacity is not None and pool.total.known > pool.capacity
        asked = "turns" if full and not _unable(run, pool) else "resident"
    return replace(pool, sharing=asked)


def _unable(run: Run, pool: Pool) -> list[str]:
    """Return the components that keep something and cannot offload it."""
    if pool.in_host_memory:  # there is nothing to be moved
        return []
    return [
        name
        for name in pool.parts
        if pool.of(name) != Size() and not run.can(OWNERS[name], Capability.OFFLOAD)
    ]


def _turns(run: Run, arrangement: Arrangement, pools: list[Pool]) -> Iterator[Problem]:
    learners = len(arrangement.groups.get("training", ()))
    for pool in pools:
        if pool.sharing == "turns" and "training" in pool.parts and learners > 1:
            line = suggest("cluster.sharing", "resident")
            # One would keep its device while it waits for another that waits for a device.
            text = (
                f"{learners} training processes would take turns on {pool.name}, and each waits "
                "for the others' gradients while it is there"
            )
            yield Problem("cluster.sharing", text, f"wanted {line}, or one of them", (line,))
            return
        for name in _unable(run, pool) if pool.sharing == "turns" else ():
            who = describe(run.components[OWNERS[name]].component)
            line = suggest("cluster.sharing", "resident")
            text = f"{name} would take turns on {pool.name}, and {who} does not declare 'offload'"
            yield Problem("cluster.sharing", text, f"wanted {line}, or another device", (line,))
            return


def takes_turns(run: Run, arrangement: Arrangement) -> frozenset[str]:
    """Return the components that share a device by turns."""
    pools = [_shared(run, pool) for pool in _pools(run, arrangement)]
    return frozenset(name for pool in pools if pool.sharing == "turns" for name in pool.parts)


# --- what does not fit ----------------------------------------------------------------------------


def _too_small(run: Run, pool: Pool) -> Problem:
    shares = "; ".join(
        f"{name} {pool.of(name)} ({', '.join(f'{p} {s}' for p, s in parts.items() if s != Size())})"
        for name, parts in pool.parts.items()
        if pool.of(name) != Size()
    )
    assert pool.capacity is not None
    at_once = "in turns" if pool.sharing == "turns" else "at once"
    found = (
        f"{pool.name} has {in_words(pool.capacity)}, and at least {in_words(pool.needed.known)} "
        f"are needed {at_once}: {shares}"
    )
    works = _what_fits(run)
    more = f"a device with more than {in_words(pool.needed.known)}, or a smaller model"
    wanted = f"wanted {' or '.join(works)}, or {more}" if works else f"wanted {more}"
    return Problem("placement", found, wanted, works)


def _what_fits(run: Run, limit: int = 3) -> tuple[str, ...]:
    """Return changes of the run that were tried and fit."""
    tried = [("cluster", "sharing", "turns")]
    arrangement, _ = arrange(run)
    if isinstance(run.config.placement, dict) and arrangement is not None:
        for entry in parse_placement(run.config.placement)[0]:
            count = f":{entry.processes}" if entry.processes else ""
            tried += [("placement", entry.key, f"{d.index}{count}") for d in arrangement.devices]
    works = (suggest(f"{s}.{k}", v) for s, k, v in tried if _fits(_changed(run, s, k, v)))
    return tuple(itertools.islice(works, limit))


def _changed(run: Run, section: str, key: str, value: str) -> Run:
    config = run.config
    old: Any = getattr(config, section)
    new = {**old, key: value} if isinstance(old, dict) else old.model_copy(update={key: value})
    return replace(run, config=config.model_copy(update={section: new}))


def _fits(run: Run) -> bool:
    arrangement, problems = arrange(run)
    if arrangement is None or problems:
        return False
    pools = [_shared(run, pool) for pool in _pools(run, arrangement)]
    unable = any(pool.sharing == "turns" and _unable(run, pool) for pool in pools)
    return not unable and all(pool.fits is not False for pool in pools)
