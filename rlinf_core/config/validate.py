"""Loading a run: the one way from a name and overrides, or from stored data, to a checked run.

A new rule about several numbers belongs to :mod:`rlinf_core.config.arithmetic`, one about several
components to :mod:`rlinf_core.config.components`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rlinf_core.capability import Capability, Level
from rlinf_core.config import arithmetic
from rlinf_core.config.components import Chooser, Chosen
from rlinf_core.config.compose import Composed, compose_run, own_section
from rlinf_core.config.findings import Findings, check
from rlinf_core.config.origins import DEFAULT, STORED, Origins, has, leaves, shown
from rlinf_core.config.overrides import parse
from rlinf_core.config.schema import (
    ALWAYS,
    DEFAULTS,
    MOST_CHUNK,
    REQUIRED,
    SECTIONS,
    UNREAD,
    RunConfig,
    as_section,
)
from rlinf_core.config.search import core_folders, find_run, unknown_run
from rlinf_core.devices import AUTO, Assumed
from rlinf_core.errors import Problem, RequestError
from rlinf_core.placement import parse_placement
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.resolve import Registry, names_distribution
from rlinf_core.plugins.settings import user_settings
from rlinf_core.specs import Facts, Kind


@dataclass(frozen=True)
class Run:
    """A run that was checked as a whole; nothing in it has been imported but options.

    Args:
        config: the run's own sections. Options of components are in ``components``.
        components: what each section chose, by its key ("algorithm", "runtime", ...). It holds
            "devices", and "node_groups.LABEL.devices", only where a kind of device was named.
        loggers: the loggers, in order.
        facts: what can be said about each chosen component without importing it.
        origins: where each value of :func:`to_plain` came from, by dotted path: ``FILE:LINE``,
            "command line", "default", "name of the file" or "stored run".
        written: the interpolations that gave values, as they were written, by dotted path.
        path: the run's own file; None for a run from stored data.
        plugins: the plugins it was checked against, with the registry.
        assumed: devices that its plan takes for granted; None for those of this machine, and always
            None in a run that starts.
    """

    config: RunConfig
    components: Mapping[str, Chosen]
    loggers: tuple[Chosen, ...]
    facts: Mapping[str, Facts]
    origins: Mapping[str, str]
    written: Mapping[str, str]
    path: Path | None
    plugins: PluginManager
    assumed: Assumed | None = None

    @property
    def registry(self) -> Registry:
        """The components there are."""
        return self.plugins.registry

    def can(self, key: str, capability: Capability) -> bool:
        """Return whether a chosen component, so configured, declares a capability in full."""
        declared = self.components[key].component.spec.capabilities
        levels = {**declared, **self.facts.get(key, Facts()).capabilities}
        return levels.get(capability) is Level.FULL

    def located(self, problem: Problem) -> Problem:
        """Return a problem with the place that gave the value in question."""
        below = f"{problem.path}."
        places = [p for key, p in self.origins.items() if f"{key}.".startswith(below)]
        file = shown(self.path) if self.path else "stored run"
        return replace(problem, origin=next((p for p in places if p != DEFAULT), file))


def load_run(run: str, overrides: Iterable[str] = (), *, sections: Set[str] | None = None) -> Run:
    """Compose, check and return a run.

    Args:
        run: path of a YAML file, or a name under the search path.
        overrides: ``key=value`` texts.
        sections: keys of the sections whose components are needed, such as "simulator" or
            "loggers"; others may be missing and are not looked at. The runtime and the devices are
            always needed. None needs all that training needs, and whatever else is there.

    Raises:
        RequestError: there is no such run, or anything in it is wrong; all findings at once.
    """
    composed, plugins = compose_named(run, overrides)
    return _checked(composed, plugins, sections, composed.path)


def compose_named(run: str, overrides: Iterable[str] = ()) -> tuple[Composed, PluginManager]:
    """Return a run as plain data that is not checked yet, and the plugins that it loads.

    Raises:
        RequestError: there is no such run, or its files cannot be read or put together.
    """
    assignments = parse(overrides)
    settings = user_settings()
    plugins = None
    path = find_run(run, core_folders())
    if path is None:
        plugins = PluginManager(settings)
        folders = _folders(plugins)
        path = find_run(run, folders)
        if path is None:
            raise unknown_run(run, folders)
    # Which plugins a run loads is told by its own file alone, before any of them is imported.
    own = own_section(path, "plugins", assignments)
    if plugins is None or own:
        typed = any(a.key.split(".")[0] == "plugins" for a in assignments)
        place = f"{shown(path)} and the command line" if typed else shown(path)
        plugins = PluginManager(settings.with_layer(place, own))
    composed = compose_run(path, _folders(plugins), assignments)
    if composed.data.get("plugins") != own:
        place = composed.origins.of("plugins")
        composed.findings.append(
            ("plugins", f"stands in {place}; only the run's own file may say which plugins to load")
        )
    return composed, plugins


def load_plain(data: Mapping[str, Any], *, sections: Set[str] | None = None) -> Run:
    """Check and return a run from what :func:`to_plain` gave.

    Raises:
        RequestError: as :func:`load_run`.
    """
    origins = Origins()
    for key in data:
        origins.put(key, STORED)
    settings = user_settings().with_layer(STORED, data.get("plugins"))
    composed = Composed(Path(STORED), dict(data), origins)
    return _checked(composed, PluginManager(settings), sections, None)


def to_plain(run: Run) -> dict[str, Any]:
    """Return a run as plain data, every default filled in, that :func:`load_plain` reads."""
    data = run.config.model_dump(mode="json")
    for path in SECTIONS:
        holder, key = holder_of(data, path)
        chosen = run.components.get(key)
        if holder is not None and chosen is not None and chosen.config is not None:
            holder[key] |= chosen.config.model_dump(mode="json")
    for section, chosen in zip(data["loggers"], run.loggers, strict=False):
        if chosen.config is not None:
            section |= chosen.config.model_dump(mode="json")
    return data


def normalise(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's data with every section in its long form, default names filled in."""
    result = lengthened(data)
    for path, name in DEFAULTS.items():
        holder, key = holder_of(result, path)
        section = None if holder is None else holder.get(key)
        if holder is not None and isinstance(section, dict) and "name" not in section:
            holder[key] = {"name": name, **section}
    return result


def lengthened(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's data with every section in its long form: ``ppo`` is ``{name: ppo}``."""
    result = dict(data)
    if isinstance(result.get("cluster"), dict):
        result["cluster"] = dict(result["cluster"])
    for path in SECTIONS:
        holder, key = holder_of(result, path)
        if holder is None or key not in holder:
            continue
        holder[key] = as_section(holder[key])
    if isinstance(result.get("loggers"), list):
        result["loggers"] = [as_section(item) for item in result["loggers"]]
    return result


def _checked(
    composed: Composed, plugins: PluginManager, sections: Set[str] | None, path: Path | None
) -> Run:
    findings = Findings(shown(composed.path) if path else str(composed.path), composed.origins)
    for where, sentence in composed.findings:
        findings.add(where, sentence)
    data = normalise(composed.data)
    chooser, loggers = _components(data, plugins.registry, sections, findings)
    # After the components, whose findings about a section say more than the core's own schema.
    config = check(RunConfig, data, "", "a run (from rlinf-core)", findings)
    if config is not None:
        trains = sections is None or "training" in sections
        algorithm = chooser.facts.get("algorithm", Facts())
        numbers = arithmetic.Numbers(config, algorithm.group_size, piecewise=algorithm.piecewise)
        for problem in arithmetic.check(numbers, trains):
            findings.add_problem(problem)
        _check_places(config, plugins.registry, findings)
        _check_plugins(config, plugins, findings)
    findings.raise_any()
    assert config is not None  # else there were findings
    written = composed.written
    run = Run(config, chooser.chosen, tuple(loggers), chooser.facts, {}, written, path, plugins)
    given = lengthened(composed.data)
    origins = {
        leaf: composed.origins.of(leaf) if has(given, leaf) else DEFAULT
        for leaf, _ in leaves(to_plain(run))
    }
    return replace(run, origins=origins)


def _check_places(config: RunConfig, registry: Registry, findings: Findings) -> None:
    """Check what can be said of a placement whatever devices the machine has."""
    cluster = config.cluster
    if cluster.node_groups and cluster.devices != AUTO:
        text = f"found {cluster.devices!r} and node groups, wanted the devices in one place: "
        findings.add("cluster.devices", f"{text}each group has its own 'devices'")
    if isinstance(config.placement, str):
        there = ", ".join(c.qualified_name for c in registry.components(Kind.SCHEDULER))
        findings.add(
            "placement",
            f"found 'auto', which a scheduler would work out, and "
            f"{f'a run calls none yet (installed: {there})' if there else 'none is installed'}; "
            "leave placement out, or give each component its devices, such as "
            "placement.simulation=0",
        )
    elif config.placement is not None:
        for problem in parse_placement(config.placement)[1]:
            findings.add_problem(problem)


def _check_plugins(config: RunConfig, plugins: PluginManager, findings: Findings) -> None:
    """Check that the run's own ``plugins:`` section is about what is installed."""
    installed = {record.distribution for record in plugins.records}
    for index, name in enumerate(config.plugins.enable):
        if canonicalize_name(name) not in installed:
            advice = f": pip install {name}" if names_distribution(name) else ""
            findings.add(f"plugins.enable.{index}", f"{name} is not installed{advice}")
    for key, distribution in config.plugins.prefer.items():
        kind, _, name = key.partition("/")
        try:
            plugins.registry.component(Kind(kind), f"{distribution}/{name}")
        except RequestError as error:
            findings.add_error(f"plugins.prefer.{key}", error)


def _components(
    data: Mapping[str, Any], registry: Registry, sections: Set[str] | None, findings: Findings
) -> tuple[Chooser, list[Chosen]]:
    """Choose the components of every section that is needed."""
    cluster, collect = (_mapping(data, key) for key in ("cluster", "collect"))
    chunk = collect.get("chunk", 1)
    fits = isinstance(chunk, int) and 1 <= chunk <= MOST_CHUNK  # else its own finding comes later
    chooser = Chooser(registry, findings, chunk if fits else 1)
    for path, kind in SECTIONS.items():
        holder, key = holder_of(data, path)
        section = holder.get(key) if holder is not None else None
        if section is None and path in DEFAULTS:
            section = {"name": DEFAULTS[path]}
        needed = path in REQUIRED or section is not None if sections is None else key in sections
        if path in UNREAD or (not needed and path not in ALWAYS):
            continue
        if section is None:
            chooser.lacking(kind, path)
        else:
            chooser.section(kind, section, path)
    labels = _mapping(cluster, "node_groups")
    named = {f"node_groups.{label}.devices": _mapping(labels, label) for label in labels}
    for where, holding in {"devices": cluster, **named}.items():
        if isinstance(text := holding.get("devices"), str) and text:
            chooser.devices(f"cluster.{where}", text)
    chooser.check_needs()
    chooser.check_conventions()
    if sections is not None and "loggers" not in sections:
        return chooser, []
    listed = data.get("loggers", RunConfig().model_dump()["loggers"])
    items = enumerate(listed) if isinstance(listed, list | tuple) else ()
    loggers = [chooser.choose(Kind.LOGGER, item, f"loggers.{index}") for index, item in items]
    return chooser, [logger for logger in loggers if logger is not None]


def holder_of(data: Any, path: str) -> tuple[dict[str, Any] | None, str]:
    """Return the mapping that holds a section, if there is one, and the section's key in it."""
    *above, key = path.split(".")
    for part in above:
        data = data.get(part)
    return (data if isinstance(data, dict) else None), key


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _folders(plugins: PluginManager) -> list[Path]:
    return [*core_folders(), *(folder for _, folder in plugins.config_folders())]
