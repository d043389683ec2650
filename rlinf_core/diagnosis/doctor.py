"""What is ready on this machine, what is not, and what to do: ``rlinf doctor``.

The machine's facts stand in ``machine.py`` and ``drivers.py``. Of each component the modules that
it requires are looked for, and its probe is asked in a process of its own, all side by side.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlinf_core.diagnosis import drivers, machine
from rlinf_core.diagnosis.apart import Answer, Call, call_all
from rlinf_core.diagnosis.machine import Fact, Surroundings
from rlinf_core.diagnosis.probes import missing_modules, probe_call, read_probe
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import PluginRecord
from rlinf_core.plugins.resolve import import_target
from rlinf_core.protocols.accelerator import needed_build
from rlinf_core.specs import Component, EngineAdapterSpec, Kind, Readiness
from rlinf_core.torch_build import torch_build


class State(enum.StrEnum):
    """How far a component can be used on this machine."""

    READY = "ready"
    """It has everything that it asks for."""
    LIMITED = "limited"
    """It works, and cannot do some of what it could."""
    NOT_READY = "not ready"
    """It lacks something without which it cannot do anything."""


@dataclass(frozen=True)
class Patient:
    """A component, and what it wants of this machine.

    Args:
        component: the component.
        wants: each thing that it wants, there or not.
    """

    component: Component
    wants: tuple[Readiness, ...]

    @property
    def state(self) -> State:
        """How far it can be used."""
        lacks = [want for want in self.wants if not want.ready]
        if any(not want.gives for want in lacks):
            return State.NOT_READY
        return State.LIMITED if lacks else State.READY

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "kind": str(self.component.kind),
            "name": self.component.spec.name,
            "distribution": self.component.distribution,
            "version": self.component.version,
            "state": str(self.state),
            "wants": [
                {
                    key: value if key == "ready" else value or None
                    for key, value in asdict(w).items()
                }
                for w in self.wants
            ],
        }


@dataclass(frozen=True)
class Diagnosis:
    """All that the doctor found.

    Args:
        facts: about the machine.
        devices: of each accelerator, its qualified name, how many, or why that cannot be told.
        patients: every component that can be used.
        quarantined: distributions none of whose components can.
    """

    facts: tuple[Fact, ...]
    devices: tuple[Mapping[str, Any], ...]
    patients: tuple[Patient, ...]
    quarantined: tuple[PluginRecord, ...]


def diagnose(manager: PluginManager, folder: Path) -> Diagnosis:
    """Look at the machine and at every component.

    Args:
        manager: the plugins there are.
        folder: where runs would be written.
    """
    components = manager.registry.components()
    accelerators = [c for c in components if c.kind is Kind.ACCELERATOR]
    probed = [c for c in components if c.spec.probe and not missing_modules(c.spec.requires)]
    calls = [drivers.library_call(), *map(_count_call, accelerators)]
    library, *answers = call_all([*calls, *(probe_call(c.spec.probe) for c in probed)])
    counted, told = answers[: len(accelerators)], answers[len(accelerators) :]
    said = {id(c): _said(c, answer) for c, answer in zip(probed, told, strict=True)}
    devices = [_device(c, a) for c, a in zip(accelerators, counted, strict=True)]
    for component, device in zip(accelerators, devices, strict=True):
        said[id(component)] = (*said.get(id(component), ()), *_of_device(device))
    patients = [Patient(c, (*_required(c), *said.get(id(c), ()))) for c in components]
    return Diagnosis(
        tuple(_facts(library, folder, components)),
        tuple(devices),
        tuple(patients),
        manager.registry.quarantined(),
    )


def _required(component: Component) -> list[Readiness]:
    """Return what a spec's ``requires`` comes to."""
    missing = missing_modules(component.spec.requires)
    remedy = f"pip install --upgrade {component.distribution}"
    return [
        Readiness(f"module {name}", False, "not installed", "", remedy)
        if name in missing
        else Readiness(f"module {name}", True, "installed")
        for name in component.spec.requires
    ]


def _said(component: Component, answer: Answer) -> Sequence[Readiness]:
    if not answer.fault:
        return read_probe(answer)
    remedy = f"rlinf plugins check {component.distribution} --probe says more"
    return [Readiness("probe", False, f"{component.spec.probe}: {answer.fault}", "", remedy)]


def _facts(libraries: Answer, folder: Path, components: Iterable[Component]) -> Iterator[Fact]:
    specs = [c.spec for c in components if isinstance(c.spec, EngineAdapterSpec)]
    spoken_to = [name for spec in specs for name in spec.distributions]
    engines = (*machine.ENGINES, *spoken_to)
    found = Surroundings(libraries.value or {}, libraries.fault, folder, engines)
    for function in (*machine.FACTS, *drivers.FACTS):
        yield from function(found)


# --- devices -------------------------------------------------------------------------------------


def _count_call(component: Component) -> Call:
    return Call(f"{__name__}:count_devices", component.spec.target, 20.0)


def count_devices(target: str) -> dict[str, Any]:
    """Return how many devices an accelerator finds, their memory in bytes, and its torch."""
    accelerator = import_target(target, "the accelerator")()
    count = int(accelerator.count())
    return {
        "count": count,
        "memory": [accelerator.memory(index) for index in range(count)],
        "torch_build": needed_build(accelerator),
    }


def _device(component: Component, answer: Answer) -> Mapping[str, Any]:
    found = answer.value or {"count": None, "memory": [], "torch_build": ""}
    return {
        "name": component.spec.name,
        "distribution": component.distribution,
        **found,
        "error": answer.fault or None,
    }


def _of_device(device: Mapping[str, Any]) -> Iterator[Readiness]:
    """Yield whether an accelerator has anything to offer, and whether torch can use it."""
    count, needed = device["count"], device["torch_build"]
    if not count:
        found = "none found" if device["error"] is None else f"counting {device['error']}"
        yield Readiness("device", False, found, "", "use a machine that has one and its driver")
        return
    yield Readiness("device", True, f"{count} found")
    build = torch_build()
    if needed and build:
        fits = build.split()[0] == needed
        remedy = "" if fits else f"install a torch that was built for {needed}"
        yield Readiness("torch", fits, f"built for {build}", "", remedy)
