"""Putting plugins to the test, in rising stages: metadata, manifest, import, probe.

Each stage is a module of checks: ``metadata.py``, ``manifest.py``, ``targets.py``, ``probes.py``.
Add a check to the list in one of them. This module says which distributions are checked, runs the
stages, each plugin's code in processes of its own, and skips what an earlier stage ruled out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_core.diagnosis.apart import Answer, Call, call_all
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.diagnosis.metadata import check_metadata
from rlinf_core.diagnosis.probes import probe_call, read_probe
from rlinf_core.plugins.discovery import Found, choose_distributions, discover
from rlinf_core.plugins.records import CORE, PluginRecord, Status
from rlinf_core.plugins.settings import PluginSettings

MANIFEST_SECONDS = 30.0
"""How long a plugin may take to say what it provides; it should be a tenth of a second."""

IMPORT_SECONDS = 180.0
"""How long importing one component may take; torch from a cold disk takes half a minute."""


@dataclass
class Report:
    """What was found about one distribution.

    Args:
        distribution: canonical name.
        version: in its metadata; empty where that cannot be read.
        findings: in the order of the stages.
    """

    distribution: str
    version: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(finding.outcome is Outcome.FAILED for finding in self.findings)


def check_plugins(
    names: Sequence[str],
    stages: Iterable[Stage],
    settings: PluginSettings,
) -> list[Report]:
    """Check installed plugins.

    Args:
        names: of distributions, also without their prefix; empty means all that are enabled.
        stages: besides metadata and manifest, which are always checked.
        settings: who is disabled. Whoever is named is checked all the same.

    Raises:
        RequestError: a name is not that of an installed distribution.
    """
    found, rejected = discover()
    chosen = choose_distributions(
        names, [*(f.distribution for f in found), *(r.distribution for r in rejected)]
    )
    reports = {}
    for name in chosen:
        item = next((item for item in found if item.distribution == name), None)
        others = [record for record in rejected if record.distribution == name]
        reports[name] = _metadata(name, item, others)
        if item is not None and (reason := settings.why_disabled(name)):
            reports[name].findings.append(_disabled(name, reason, bool(names)))
    components = _manifests([n for n, r in reports.items() if _loadable(r)], reports)
    wanted = set(stages)
    if Stage.IMPORT in wanted:
        _imports(components, reports)
    if Stage.PROBE in wanted:
        _probes(components, reports)
    for report in reports.values():
        report.findings += _not_checked(report, {Stage.MANIFEST, *wanted})
    return list(reports.values())


# --- the stages ----------------------------------------------------------------------------------


def _metadata(name: str, found: Found | None, others: Sequence[PluginRecord]) -> Report:
    version = found.version if found else next((r.version for r in others), "")
    report = Report(name, version, check_metadata(found) if found else [])
    for record in others:
        report.findings.append(_other(record))
    return report


def _other(record: PluginRecord) -> Finding:
    """Return what is to be said about a copy that is not loaded, or cannot be."""
    if record.status is Status.SHADOWED:
        sentence = record.error.partition(". Remove ")[0]
        remedy = f"remove {record.origin}, or uninstall that copy"
        return Finding(Stage.METADATA, "copies", Outcome.WARNING, sentence, remedy)
    sentence = record.error.partition(". Install ")[0]
    remedy = f"pip install --force-reinstall {record.distribution}, or remove {record.origin}"
    return Finding(Stage.METADATA, "installed", Outcome.FAILED, sentence, remedy)


def _disabled(name: str, reason: str, named: bool) -> Finding:
    sentence, _, _ = reason.partition(";")
    if named:
        return Finding(
            Stage.METADATA,
            "enabled",
            Outcome.WARNING,
            f"{sentence}, so no run loads it; checked all the same",
            f"rlinf plugins enable {name}",
        )
    return Finding(
        Stage.METADATA,
        "enabled",
        Outcome.SKIPPED,
        f"{sentence}; name it to check it all the same",
    )


def _loadable(report: Report) -> bool:
    """Return whether the core would load it: it is installed, it fits, and nobody disabled it."""
    found = {finding.check: finding.outcome for finding in report.findings}
    fits = found.get("core-version") is Outcome.OK or report.distribution == CORE
    return fits and found.get("enabled") is not Outcome.SKIPPED


def _not_checked(report: Report, stages: Iterable[Stage]) -> list[Finding]:
    """Return a finding for each stage that found nothing, with the reason."""
    missing = sorted(
        set(stages) - {finding.stage for finding in report.findings}, key=list(Stage).index
    )
    if not missing:
        return []
    reason = "an earlier stage failed" if report.failed else "no component has a probe"
    if any(finding.outcome is Outcome.SKIPPED for finding in report.findings):
        reason = "it is disabled"
    return [Finding(stage, "all", Outcome.SKIPPED, f"not checked: {reason}") for stage in missing]


Components = dict[str, list[dict[str, Any]]]


def _manifests(names: Sequence[str], reports: dict[str, Report]) -> Components:
    """Check manifests; return the components of each distribution."""
    function = "rlinf_core.diagnosis.manifest:check_manifest"
    answers = call_all(Call(function, name, MANIFEST_SECONDS) for name in names)
    components: Components = {}
    for name, answer in zip(names, answers, strict=True):
        report = reports[name]
        if answer.fault:
            remedy = "make importing its plugin module do nothing but define functions"
            report.findings.append(
                _died(Stage.MANIFEST, "module", "its plugin module", answer, remedy)
            )
            continue
        report.findings += map(Finding.from_json, answer.value["findings"])
        components[name] = answer.value["components"]
    return components


def _imports(components: Components, reports: dict[str, Report]) -> None:
    function = "rlinf_core.diagnosis.targets:check_target"
    waiting = [(name, component) for name, some in components.items() for component in some]
    answers = call_all(Call(function, component, IMPORT_SECONDS) for _, component in waiting)
    for (name, component), answer in zip(waiting, answers, strict=True):
        if answer.fault:
            what = f"importing {component['target'].partition(':')[0]}"
            remedy = "make importing its module do nothing but define classes and functions"
            finding = _died(Stage.IMPORT, "target", what, answer, remedy, component["label"])
            reports[name].findings.append(finding)
        else:
            reports[name].findings += map(Finding.from_json, answer.value)


def _probes(components: Components, reports: dict[str, Report]) -> None:
    waiting = [
        (name, component)
        for name, some in components.items()
        for component in some
        if component["probe"]
    ]
    answers = call_all(probe_call(component["probe"]) for _, component in waiting)
    for (name, component), answer in zip(waiting, answers, strict=True):
        findings = reports[name].findings
        if answer.fault:
            remedy = "a probe returns rlinf_core.api.Readiness, whatever the machine lacks"
            who = f"the probe {component['probe']}"
            findings.append(_died(Stage.PROBE, "probe", who, answer, remedy, component["label"]))
            continue
        for item in read_probe(answer):
            outcome = Outcome.OK if item.ready else Outcome.WARNING
            lost = f"; without it there is no {item.gives}" if item.gives else ""
            sentence = f"{item.what}: {item.found}{'' if item.ready else lost}"
            finding = Finding(
                Stage.PROBE, "probe", outcome, sentence, item.remedy, component["label"]
            )
            findings.append(finding)


def _died(
    stage: Stage, check: str, what: str, answer: Answer, remedy: str, component: str = ""
) -> Finding:
    detail = answer.traceback or answer.output
    sentence = f"{what}: {answer.fault}" if answer.traceback else f"{what} {answer.fault}"
    return Finding(stage, check, Outcome.FAILED, sentence, remedy, component, detail)
