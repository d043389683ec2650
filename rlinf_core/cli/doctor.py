"""``rlinf doctor``: what this machine has, and which components are ready on it.

It reports, so it ends with 0 whatever it finds. Where components or distributions are named, it
looks at these alone and ends with 1 if one of them is not ready: for scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from rlinf_core.cli.report import print_json, record_data
from rlinf_core.diagnosis.doctor import Diagnosis, Patient, State, diagnose
from rlinf_core.diagnosis.machine import size
from rlinf_core.errors import ConfigError, RequestError, did_you_mean
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import PREFIX, PluginRecord
from rlinf_core.plugins.settings import PluginSettings


def main(names: Sequence[str], json: bool) -> int:
    """Report; return the exit code: 0, or 1 if something that was named is not ready."""
    fault = ""
    try:
        manager = PluginManager()
    except ConfigError as error:  # this is what a doctor is for
        fault = f"{error}; plugins are shown as if that file said nothing"
        manager = PluginManager(PluginSettings())
    found = diagnose(manager, Path.cwd())
    patients, out = _named(names, found)
    if json:
        print_json(
            machine={fact.name: fact.value for fact in found.facts},
            devices=list(found.devices),
            components=[patient.as_json() for patient in patients],
            quarantined=[record_data(record) for record in out],
            configuration_error=fault or None,
        )
    else:
        blocks = [] if names else [_machine(found)]
        blocks += _patients(patients, everything=bool(names))
        blocks += [_quarantined(record) for record in out]
        blocks += [f"YOUR CONFIGURATION\n  {fault}"] if fault else []
        print("\n\n".join(blocks))
    lacking = any(patient.state is State.NOT_READY for patient in patients) or out
    return 1 if names and lacking else 0


def _named(
    names: Sequence[str], found: Diagnosis
) -> tuple[Sequence[Patient], Sequence[PluginRecord]]:
    """Return the components and quarantined distributions that are meant; all if none is named."""
    if not names:
        return found.patients, found.quarantined
    patients: list[Patient] = []
    out: list[PluginRecord] = []
    for name in names:
        mine = [patient for patient in found.patients if _means(name, patient)]
        plain = str(canonicalize_name(name))
        theirs = [
            record
            for record in found.quarantined
            if record.may_provide(name) or record.distribution in (plain, f"{PREFIX}{plain}")
        ]
        if not mine and not theirs:
            known = {p.component.spec.name for p in found.patients}
            known |= {p.component.distribution for p in found.patients}
            known |= {record.distribution for record in found.quarantined}
            near = did_you_mean(name, known)
            raise RequestError(
                f"no component or distribution named {name!r} is installed.{near} "
                "See: rlinf plugins list"
            )
        patients += [patient for patient in mine if patient not in patients]
        out += [record for record in theirs if record not in out and not mine]
    return patients, out


def _means(name: str, patient: Patient) -> bool:
    component = patient.component
    return name in (component.spec.name, component.qualified_name, component.distribution)


def _machine(found: Diagnosis) -> str:
    lines = [f"  {fact.name.replace('_', ' '):<15}{fact.shown}" for fact in found.facts]
    for device in found.devices:
        count, memory = device["count"], [size(m) for m in device["memory"] if m is not None]
        shown = f"cannot be counted: it {device['error']}" if count is None else str(count)
        shown += f", {', '.join(memory)}" if memory else ""
        lines.append(f"  {'device ' + device['name']:<15}{shown}")
    return "\n".join(["MACHINE", *lines])


def _patients(patients: Sequence[Patient], everything: bool) -> list[str]:
    """Return what components want; of those that are ready only the names, unless asked for."""
    ready = [p for p in patients if p.state is State.READY and not everything]
    plain = [(p.component.kind, p.component.spec.name) for p in ready]
    names = [
        f"{kind} {name if plain.count((kind, name)) == 1 else p.component.qualified_name}"
        for p, (kind, name) in zip(ready, plain, strict=True)
    ]
    blocks = [f"READY\n  {', '.join(names)}"] if ready else []
    return blocks + [_patient(patient) for patient in patients if patient not in ready]


def _patient(patient: Patient) -> str:
    component = patient.component
    head = f"{component.kind} {component.spec.name} (from {component.distribution})"
    lines = [f"{str(patient.state).upper()}: {head}"]
    for want in patient.wants:
        if want.ready:
            lines.append(f"  has    {want.what}: {want.found}")
            continue
        lost = f"; without it there is no {want.gives}" if want.gives else ""
        lines.append(f"  lacks  {want.what}: {want.found}{lost}")
        if want.remedy:
            lines.append(f"{'':9}to do: {want.remedy}")
    return "\n".join(lines if patient.wants else [*lines, "  wants nothing of the machine"])


def _quarantined(record: PluginRecord) -> str:
    head = f"{str(record.status).upper()}: {record.distribution} {record.version}".rstrip()
    return f"{head}\n  {record.error}\n  more: rlinf plugins check {record.distribution}"
