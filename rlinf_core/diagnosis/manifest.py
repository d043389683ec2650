"""The second stage of a check: what a plugin says about itself, read without anything heavy.

Runs in a process of its own, in which importing a heavy module is refused. A check is a function
of the loaded record or of one component; add it to :data:`CHECKS` or :data:`COMPONENT_CHECKS`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel

from rlinf_core.config.components import config_class
from rlinf_core.config.compose import compose_run
from rlinf_core.config.files import SUFFIX
from rlinf_core.config.search import core_folders
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.diagnosis.forbidden import HEAVY, LISTING, Refuse
from rlinf_core.diagnosis.probes import missing_modules
from rlinf_core.diagnosis.targets import takes
from rlinf_core.errors import PluginError, RequestError
from rlinf_core.plugins.discovery import package_folders
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import Phase, PluginRecord, Status
from rlinf_core.plugins.resolve import describe, import_target
from rlinf_core.plugins.settings import EVERY, Layer, PluginSettings
from rlinf_core.specs import Component, EngineAdapterSpec

_LATER = "import it inside the functions that use it, or name its code by a string"


def check_manifest(distribution: str) -> dict[str, Any]:
    """Load one plugin and check what it says.

    Returns:
        plain data: ``findings``, and ``components``, what later stages need to know of each.
    """
    with Refuse(LISTING) as refuse:
        record = load_alone(distribution)
    findings = list(_module(record, refuse))
    if record.ok:
        for check in CHECKS:
            findings += check(record)
        for component in record.components:
            for component_check in COMPONENT_CHECKS:
                findings += component_check(component)
    return {
        "findings": [finding.as_json() for finding in findings],
        "components": [
            {
                "label": label(component),
                "kind": str(component.kind),
                "who": describe(component),
                "target": component.spec.target,
                "probe": component.spec.probe,
                "capabilities": [str(c) for c in component.spec.capabilities],
            }
            for component in record.components
            if record.ok
        ],
    }


def load_alone(distribution: str) -> PluginRecord:
    """Load one plugin and no other but the core, whoever is disabled."""
    layer = Layer("check", frozenset({distribution}), frozenset({EVERY}))
    records = PluginManager(PluginSettings((layer,))).records
    (record,) = (
        r
        for r in records
        if r.distribution == distribution
        and r.status is not Status.SHADOWED
        and r.phase is not Phase.METADATA
    )
    return record


def label(component: Component) -> str:
    """Return ``algorithm ppo``."""
    return f"{component.kind} {component.spec.name}"


# --- of the whole plugin -------------------------------------------------------------------------


def _module(record: PluginRecord, refuse: Refuse) -> Iterator[Finding]:
    if refuse.seen:
        sentence = f"importing {record.module} imports something heavy: {'; '.join(refuse.seen)}"
        remedy = f"rlinf plugins list imports this module for everybody; {_LATER}"
        yield _finding("module", Outcome.FAILED, sentence, remedy, detail=record.traceback)
    elif record.ok:
        yield _finding("module", Outcome.OK, f"{record.module} imports nothing heavy")
    else:
        sentence, _, told = record.error.partition(". Install ")
        where = "; the traceback says where" if record.traceback else ""
        do_without = f"rlinf plugins disable {record.distribution}"
        remedy = f"correct plugin.py{where}; or do without it: {do_without}"
        if told:
            remedy = f"install {told}"
        yield _finding("module", Outcome.FAILED, sentence, remedy, detail=record.traceback)


def _provides(record: PluginRecord) -> Iterator[Finding]:
    names = ", ".join(label(component) for component in record.components)
    if names:
        yield _finding("components", Outcome.OK, f"it provides {names}")
    elif not record.configs:
        sentence = "it provides no component and no run files"
        remedy = "return specs from the hook of their kind, unless only side effects are meant"
        yield _finding("components", Outcome.WARNING, sentence, remedy)


def _run_files(record: PluginRecord) -> Iterator[Finding]:
    folders = [folder for package in record.configs for folder in package_folders(package)]
    files = sorted(file for folder in folders for file in folder.glob(f"*{SUFFIX}"))
    wrong = [f"{file.name}: {fault}" for file in files if (fault := _compose(file, folders))]
    if wrong:
        remedy = "correct the file; rlinf train FILE says more"
        yield _finding("run-files", Outcome.FAILED, "; ".join(wrong), remedy)
    elif folders:
        sentence = f"{len(files)} run file{'' if len(files) == 1 else 's'} can be composed"
        yield _finding("run-files", Outcome.OK, sentence)


def _compose(file: Path, folders: list[Path]) -> str:
    try:
        composed = compose_run(file, [*core_folders(), *folders], [])
    except RequestError as error:
        return str(error)
    return "; ".join(f"{path}: {sentence}" for path, sentence in composed.findings)


CHECKS: tuple[Callable[[PluginRecord], Iterator[Finding]], ...] = (_provides, _run_files)
"""Checks of a plugin that could be loaded."""


# --- of one component ----------------------------------------------------------------------------


def _spec(component: Component) -> Iterator[Finding]:
    spec = component.spec
    wrong = []
    if not spec.summary.strip() or len(spec.summary.splitlines()) != 1:
        wrong.append(f"summary is {spec.summary!r}, wanted one line")
    requires: Any = spec.requires  # a plugin may have put anything there
    if isinstance(requires, str) or not all(isinstance(name, str) for name in requires):
        wrong.append(f"requires is {requires!r}, wanted a tuple of modules' names")
    if isinstance(spec, EngineAdapterSpec):
        wrong += [f"{name} is empty" for name in ("engine", "versions") if not getattr(spec, name)]
        try:
            SpecifierSet(spec.versions)
        except InvalidSpecifier as error:
            wrong.append(f"versions: {error}")
    if wrong:
        yield _about(component, "spec", Outcome.FAILED, "; ".join(wrong), "correct plugin.py")
    else:
        yield _about(component, "spec", Outcome.OK, "its spec is well formed")


def _options(component: Component) -> Iterator[Finding]:
    if not component.spec.config:
        return
    with Refuse(HEAVY) as refuse:
        try:
            model, fault = config_class(component), ""
        except PluginError as error:
            model, fault = None, str(error)
    if refuse.seen:
        sentence = f"importing its options imports something heavy: {'; '.join(refuse.seen)}"
        yield _about(component, "options", Outcome.FAILED, sentence, _LATER)
    elif model is None:
        remedy = "name a subclass of rlinf_core.api.Config"
        yield _first_line(component, "options", fault, remedy)
    elif bare := list(without_help(model)):
        sentence = f"options without help: {', '.join(bare)}"
        remedy = "put a docstring below each option"
        yield _about(component, "options", Outcome.FAILED, sentence, remedy)
    else:
        sentence = f"{model.__name__} imports nothing heavy and explains every option"
        yield _about(component, "options", Outcome.OK, sentence)


def without_help(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of options that have no help, those of nested classes included."""
    for name, field in model.model_fields.items():
        if not (field.description or "").strip():
            yield f"{prefix}{name}"
        for inner in _models(field.annotation):
            yield from without_help(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _facts(component: Component) -> Iterator[Finding]:
    if not component.spec.facts:
        return
    target = component.spec.facts
    with Refuse(HEAVY) as refuse:
        try:
            function, fault = import_target(target, f"the facts of {describe(component)}"), ""
        except PluginError as error:
            function, fault = None, str(error)
    remedy = "name a function fn(config, upstream) -> Facts"
    if refuse.seen:
        sentence = f"importing its facts imports something heavy: {'; '.join(refuse.seen)}"
        yield _about(component, "facts", Outcome.FAILED, sentence, _LATER)
    elif fault:
        yield _first_line(component, "facts", fault, remedy)
    elif not takes(function, 2):
        sentence = f"{target} cannot be called with two arguments"
        yield _about(component, "facts", Outcome.FAILED, sentence, remedy)
    else:
        yield _about(component, "facts", Outcome.OK, f"{target} imports nothing heavy")


def _requires(component: Component) -> Iterator[Finding]:
    if not component.spec.requires:
        return
    missing = missing_modules(component.spec.requires)
    if missing:
        sentence = f"not installed: {', '.join(missing)}"
        remedy = f"pip install --upgrade {component.distribution}"
        yield _about(component, "requires", Outcome.FAILED, sentence, remedy)
    else:
        sentence = f"installed: {', '.join(component.spec.requires)}"
        yield _about(component, "requires", Outcome.OK, sentence)


COMPONENT_CHECKS: tuple[Callable[[Component], Iterator[Finding]], ...] = (
    _spec,
    _options,
    _facts,
    _requires,
)
"""Checks of one component."""


def _finding(
    check: str, outcome: Outcome, sentence: str, remedy: str = "", detail: str = ""
) -> Finding:
    return Finding(Stage.MANIFEST, check, outcome, sentence, remedy, detail=detail)


def _about(
    component: Component,
    check: str,
    outcome: Outcome,
    sentence: str,
    remedy: str = "",
    detail: str = "",
) -> Finding:
    about = label(component)
    return Finding(Stage.MANIFEST, check, outcome, sentence, remedy, about, detail)


def _first_line(component: Component, check: str, fault: str, remedy: str) -> Finding:
    sentence, _, detail = fault.partition("\n")
    return _about(component, check, Outcome.FAILED, sentence, remedy, detail)
