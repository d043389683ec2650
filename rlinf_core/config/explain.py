"""A checked run as a person wants to see it: every value with where it came from, and what follows.

:func:`explain` gives it as data, :func:`yaml_lines` as a run file with comments. A new sort of
place that values come from is a member of :class:`Source`.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

import rlinf_core
from rlinf_core.config.origins import COMMAND_LINE, DEFAULT, FILE_NAME, STORED, join, leaves, shown
from rlinf_core.config.quantities import Quantity, quantities
from rlinf_core.config.schema import SECTIONS
from rlinf_core.config.validate import Run, to_plain
from rlinf_core.plugins.records import CORE
from rlinf_core.specs import Component, Facts, Unknown


class Source(enum.StrEnum):
    """What sort of place a value came from."""

    RUN_FILE = "run file"
    GROUP_FILE = "group file"
    COMMAND_LINE = COMMAND_LINE
    DEFAULT = DEFAULT
    FILE_NAME = FILE_NAME
    STORED = STORED


@dataclass(frozen=True)
class Value:
    """One value of a run.

    Args:
        path: its dotted path.
        value: plain data; an empty list or mapping is a value, too.
        source: the sort of place it came from.
        file: the file, as a person would type it; None where it came from no file.
        line: the line there; None where it came from no file.
        owner: whose option it is, "distribution version"; None where the run reads it not at all.
        written: the interpolation that gave it, as written; None where it was given as it is.
    """

    path: str
    value: Any
    source: Source
    file: str | None
    line: int | None
    owner: str | None
    written: str | None

    @property
    def origin(self) -> str:
        """Where it came from, in words."""
        place = f"{self.file}:{self.line}" if self.file else str(self.source)
        if self.source is Source.DEFAULT and self.owner:
            place = f"default of {self.owner}"
        return f"{place}, from {self.written}" if self.written else place


@dataclass(frozen=True)
class Explanation:
    """What a run comes to.

    Args:
        name: the run's name.
        path: its file, as a person would type it; None for a stored run.
        plain: all values, nested, as :func:`rlinf_core.config.validate.to_plain` gives them.
        values: each value by its dotted path.
        components: path of each section to the component that it chose.
        facts: path of each section to what is known of that component, so configured.
        quantities: what follows from the numbers.
        layers: what the user's file and the run say about plugins, as (place, section); the last
            one wins.
    """

    name: str
    path: str | None
    plain: Mapping[str, Any]
    values: Mapping[str, Value]
    components: Mapping[str, Component]
    facts: Mapping[str, Facts]
    quantities: tuple[Quantity, ...]
    layers: tuple[tuple[str, Mapping[str, Any]], ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data. Numbers that JSON cannot hold become text: "inf", "nan"."""
        return {
            "run": self.name,
            "path": self.path,
            "values": [
                {
                    "path": value.path,
                    "value": _sayable(value.value),
                    "origin": value.origin,
                    "source": str(value.source),
                    "file": value.file,
                    "line": value.line,
                    "owner": value.owner,
                    "written": value.written,
                }
                for value in self.values.values()
            ],
            "components": [
                {
                    "section": section,
                    "kind": str(component.kind),
                    "name": component.spec.name,
                    "distribution": component.distribution,
                    "version": component.version,
                    "facts": _facts(self.facts[section]),
                }
                for section, component in self.components.items()
            ],
            "arithmetic": [quantity._asdict() for quantity in self.quantities],
            "plugins": [{"origin": origin, **section} for origin, section in self.layers],
        }


def explain(run: Run, trains: bool = True) -> Explanation:
    """Return what a checked run comes to. Nothing is imported for it.

    Args:
        run: as :func:`rlinf_core.config.validate.load_run` gives it.
        trains: whether it was checked for training.
    """
    plain = to_plain(run)
    by_key = {path.rpartition(".")[2]: path for path in (*SECTIONS, "cluster.devices")}
    components = {by_key[key]: chosen.component for key, chosen in run.components.items()}
    components = {path: components[path] for path in by_key.values() if path in components}
    for index, logger in enumerate(run.loggers):
        components[f"loggers.{index}"] = logger.component
    own = shown(run.path) if run.path else None
    values = {}
    for path, value in leaves(plain):
        source, file, line = _place(run.origins[path], own)
        written = None if source is Source.DEFAULT else _written(run.written, path)
        values[path] = Value(path, value, source, file, line, _owner(path, components), written)
    return Explanation(
        name=run.config.name,
        path=own,
        plain=plain,
        values=values,
        components=components,
        facts={path: run.facts.get(path.rpartition(".")[2], Facts()) for path in components},
        quantities=tuple(quantities(run.config, trains)),
        layers=tuple(_layers(run)),
    )


def yaml_lines(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield (line of YAML, where its value came from) of a run file that holds every value.

    Saved to a file, the lines are a run of the same values. The second text is empty where a line
    holds no value.
    """
    yield from _lines(explanation.plain, "", "", explanation.values)


def _lines(
    data: Mapping[str, Any], path: str, indent: str, values: Mapping[str, Value]
) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        below, head = join(path, key), f"{indent}{_scalar(key)}:"
        if isinstance(value, Mapping) and value:
            yield head, ""
            yield from _lines(value, below, f"{indent}  ", values)
        elif isinstance(value, list) and value:
            origins = {v.origin for p, v in values.items() if p.startswith(f"{below}.")}
            if len(origins) == 1 and not any(isinstance(v, dict | list) for v in value):
                yield f"{head} [{', '.join(_scalar(item) for item in value)}]", origins.pop()
                continue
            yield head, ""
            yield from _items(value, below, indent, values)
        else:
            yield f"{head} {_scalar(value)}", values[below].origin


def _items(
    items: list[Any], path: str, indent: str, values: Mapping[str, Value]
) -> Iterator[tuple[str, str]]:
    for index, item in enumerate(items):
        below = join(path, index)
        if isinstance(item, dict | list) and item:
            deeper = f"{indent}  "
            lines = (
                _lines(item, below, deeper, values)
                if isinstance(item, dict)
                else _items(item, below, deeper, values)
            )
            for first, (text, origin) in enumerate(lines):
                yield (text if first else f"{indent}- {text[len(deeper) :]}"), origin
        else:
            yield f"{indent}- {_scalar(item)}", values[below].origin


def _scalar(value: Any) -> str:
    """Return a single value as YAML that every reader of YAML takes for the same."""
    if not isinstance(value, str):
        return _dumped(value, default_flow_style=True)
    if re.fullmatch(r"[A-Za-z_][\w./-]*", value, re.ASCII) and yaml.safe_load(value) == value:
        return value
    # It is a value and no interpolation, whatever it looks like.
    value = re.sub(r"(\\*)\$\{", lambda match: 2 * match[1] + r"\${", value)
    return _dumped(value, default_style='"', allow_unicode=True)


def _dumped(value: Any, **options: Any) -> str:
    text: str = yaml.safe_dump(value, width=math.inf, **options)
    return text.removesuffix("\n").removesuffix("\n...")


def _place(origin: str, own: str | None) -> tuple[Source, str | None, int | None]:
    """Return the sort of a place, and file and line where it is one."""
    file, _, line = origin.rpartition(":")
    if not file:
        return Source(origin), None, None
    return (Source.RUN_FILE if file == own else Source.GROUP_FILE), file, int(line)


def _owner(path: str, components: Mapping[str, Component]) -> str | None:
    """Return whose option a value is."""
    section = next((s for s in (*SECTIONS, *components) if path.startswith(f"{s}.")), None)
    if section is None or path == f"{section}.name":
        return f"{CORE} {rlinf_core.__version__}"
    component = components.get(section)  # else the run was not checked for what reads it
    return None if component is None else f"{component.distribution} {component.version}"


def _written(written: Mapping[str, str], path: str) -> str | None:
    """Return the interpolation that gave a value, or what it lies in."""
    while path and path not in written:
        path = path.rpartition(".")[0]
    return written.get(path)


def _layers(run: Run) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for layer in run.plugins.settings.layers:
        section = {
            "enable": sorted(layer.enable),
            "disable": sorted(layer.disable),
            "prefer": dict(layer.prefer or {}),
        }
        if any(section.values()):
            yield layer.origin, section


def _facts(facts: Facts) -> dict[str, Any]:
    """Return what is known; an unknown is an object that says why, and never a number."""
    return {
        "parameters": _known(facts.parameters),
        "bytes": _known(facts.bytes),
        "spaces": _known(facts.spaces),
        "group_size": facts.group_size,
        "capabilities": {str(c): level.name.lower() for c, level in facts.capabilities.items()},
        "conventions": dict(facts.conventions),
    }


def _known(fact: Any) -> Any:
    if isinstance(fact, Unknown):
        return {"unknown": fact.reason}
    return fact if isinstance(fact, int) else str(fact)


def _sayable(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
