"""The JSON Schema of run files, for editors: completion, help and marks while a person types.

It is made from the same classes of options that check a run. It says what one file may hold, and a
file is not all of a run: a group or the command line may give the rest, so it demands no option.
It takes every file that a run can be made of; rules that only code can check are left to it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from rlinf_core.config.components import config_class
from rlinf_core.config.schema import DEFAULTS, SECTIONS, UNREAD, RunConfig, Section
from rlinf_core.config.validate import holder_of, normalise
from rlinf_core.devices import AUTO
from rlinf_core.errors import PluginError, RequestError
from rlinf_core.plugins.resolve import Registry, describe
from rlinf_core.specs import Component, Kind

TITLE = "A run file of rlinf"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

Node = dict[str, Any]

_TEXT = {
    "pattern": r"\$\{|^\?\?\?$",
    "patternErrorMessage": "Text is only taken here as an interpolation ${...}, or as ???.",
}
"""Where no text is wanted: what an interpolation looks like, or a value that must yet be given."""

_NOTES = ("description", "default", "deprecated", "examples")
"""What is said to a person; the rest of a schema is rules."""

_GROUPS = {
    "description": "Groups to take parts from: - model: small is the file model/small.yaml.",
    "type": "array",
    "items": {
        "type": ["string", "object"],
        "additionalProperties": {"type": ["string", "null", "array"], "items": {"type": "string"}},
    },
}


class Schema(NamedTuple):
    """A schema, and what could not be put into it.

    Args:
        document: the schema, as plain data.
        faults: a sentence for each component whose options are taken unchecked.
    """

    document: Node
    faults: list[str]


def json_schema(registry: Registry, chosen: Mapping[str, str] | None = None) -> Schema:
    """Return the JSON Schema (2020-12) of a run file.

    Args:
        registry: the components that a run file may name.
        chosen: dotted path of a section to the component that it is of where the file does not
            say so, because a group of the run does.
    """
    return _Builder(registry, {**DEFAULTS, **(chosen or {})}).build()


def is_ours(text: str) -> bool:
    """Return whether a text is such a schema."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("title") == TITLE


def names_in(data: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted path to component for each section of a run's data that names one."""
    found = {}
    long = normalise(data)
    for path in SECTIONS:
        holder, key = holder_of(long, path)
        section = holder.get(key) if holder is not None else None
        name = section.get("name") if isinstance(section, dict) else None
        if isinstance(name, str):
            found[path] = name
    return found


_PLACEMENT: Node = {
    "type": ["object", "string", "null"],
    "propertyNames": {"type": "string"},
    "additionalProperties": {"type": ["string", "integer"]},
    "default": None,
}
"""Who goes where: a device by its number, or a text that the placement's own grammar reads."""


class _Builder:
    """Makes one schema; definitions and faults are gathered on the way."""

    def __init__(self, registry: Registry, chosen: Mapping[str, str]) -> None:
        self._registry, self._chosen = registry, chosen
        self._definitions: dict[str, Node] = {}
        self._faults: list[str] = []

    def build(self) -> Schema:
        """Return the whole document."""
        root = self._model("run", RunConfig)
        for path, kind in SECTIONS.items():
            self._put(root, path, self._section(kind, path))
        loggers = {"required": ["name"], **self._section(Kind.LOGGER, "loggers")}
        self._put(root, "loggers", {"type": ["array", "string"], **_TEXT, "items": loggers})
        self._put(root, "cluster.devices", self._devices())
        self._definitions["run.NodeGroupConfig"]["properties"]["devices"] |= self._devices()
        self._put(root, "placement", _PLACEMENT)
        root["properties"]["defaults"] = _GROUPS
        # Without groups, a section must say by itself of which component it is.
        alone = [p for p in SECTIONS if "." not in p and p not in DEFAULTS and p not in UNREAD]
        named = {"if": {"type": "object"}, "then": {"required": ["name"]}}
        document = {
            "$schema": DIALECT,
            "title": TITLE,
            **root,
            "if": {"not": {"required": ["defaults"]}},
            "then": {"properties": dict.fromkeys(alone, named)},
            "$defs": dict(sorted(self._definitions.items())),
        }
        return Schema(document, self._faults)

    def _devices(self) -> Node:
        names = [AUTO, *self._named(Kind.ACCELERATOR)]
        counted = "|".join(re.escape(name) for name in names)
        number = {"pattern": rf"^\s*[0-9]+\s*x\s*({counted})\s*$"}
        return {"type": "string", "anyOf": [_open({"enum": names}), number], "default": AUTO}

    def _put(self, root: Node, path: str, node: Node) -> None:
        """Replace a property of the run, and keep what is said about it."""
        *above, key = path.split(".")
        model: type[BaseModel] = RunConfig
        holder = root
        for part in above:
            model = RunConfig.model_fields[part].annotation  # type: ignore[assignment]
            holder = self._definitions[f"run.{model.__name__}"]
        holder["properties"][key] = {
            "description": _said(model.model_fields[key].description or ""),
            **node,
        }

    def _section(self, kind: Kind, path: str) -> Node:
        """Return what a section that chooses a component may be."""
        if path in UNREAD:
            return {"type": "null"}
        named = self._named(kind)
        name: Node = {
            "enum": list(named),
            "enumDescriptions": [_summary(c) for c in named.values()],
        }
        if path in DEFAULTS:
            name["default"] = DEFAULTS[path]
        options: dict[str, list[str]] = {}
        for spelling, component in named.items():
            options.setdefault(self._options(component), []).append(spelling)
        of = [
            {
                "if": {"properties": {"name": {"enum": spellings}}, "required": ["name"]},
                "then": {"$ref": reference},
            }
            for reference, spellings in options.items()
        ]
        meant = named.get(self._chosen.get(path, ""))
        nameless = [self._options(meant)] if meant else list(options)
        any_of: list[Node] = [{"$ref": reference} for reference in nameless] or [{"not": {}}]
        unnamed = {"if": {"not": {"required": ["name"]}}, "then": {"anyOf": any_of}}
        short = _open(name)
        if path not in DEFAULTS:  # as good as leaving it out
            short["anyOf"] = [*short["anyOf"], {"type": "null"}]
        return {
            # Editors offer examples, and not what stands below an "else".
            "examples": [spelling for spelling in named if "/" not in spelling],
            "if": {"type": "object"},
            "then": {"properties": {"name": _open(name)}, "allOf": [*of, unnamed]},
            "else": short,
        }

    def _named(self, kind: Kind) -> dict[str, Component]:
        """Return what may be written for a component, to the component; short names first."""
        found = {}
        components = self._registry.components(kind)
        for spelling in (
            *dict.fromkeys(c.spec.name for c in components),
            *(c.qualified_name for c in components),
        ):
            with contextlib.suppress(RequestError):  # provided twice, and nobody is preferred
                found[spelling] = self._registry.component(kind, spelling)
        return found

    def _options(self, component: Component) -> str:
        """Return a reference to what the section of a component may hold."""
        key = f"{component.kind}.{component.distribution}.{component.spec.name}"
        if key not in self._definitions:
            node: Node = {"type": "object", "properties": {}, "additionalProperties": False}
            try:
                model = config_class(component)
                if model is not None:
                    node = self._model(key, model)
            except (PluginError, PydanticInvalidForJsonSchema) as error:
                self._faults.append(f"any option of {describe(component)} is taken: {error}")
                node = {"type": "object", "properties": {}}
            node.pop("required", None)  # a group or the command line may give it
            node["description"] = _summary(component)
            node["properties"] = {"name": True, **node["properties"]}
            self._definitions[key] = node
        return f"#/$defs/{key}"

    def _model(self, key: str, model: type[BaseModel]) -> Node:
        """Return the schema of a class of options; those that it is made of become definitions."""
        node = model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}")
        for name, inner in node.pop("$defs", {}).items():
            if name != Section.__name__:
                self._definitions[f"{key}.{name}"] = _inside(inner)
        root: Node = _inside(node)
        for name, field in model.model_fields.items():  # left out where it is the class's own
            root["properties"][name].setdefault("description", _said(field.description or ""))
        return root


def _open(node: Node) -> Node:
    """Return a schema that takes an interpolation besides what it took."""
    notes = {key: node[key] for key in _NOTES if key in node}
    rules = {key: value for key, value in node.items() if key not in _NOTES and key != "title"}
    if "description" in notes:
        notes["description"] = _said(notes["description"])
    if rules in ({}, {"type": "string"}):
        return {**notes, **rules}
    members = rules["anyOf"] if set(rules) == {"anyOf"} else [rules]
    members = [_inside(member) for member in members]
    return {**notes, **(_merged(members) or {"anyOf": [*members, {"type": "string", **_TEXT}]})}


def _merged(members: list[Node]) -> Node | None:
    """Return alternatives of different plain types as one rule, whose faults editors tell better.

    A rule such as ``minimum`` is about one type only, so those of several types can stand together.
    """
    rules: Node = {}
    types: list[str] = []
    for member in members:
        kind = member.get("type")
        own = {key: value for key, value in member.items() if key != "type"}
        clash = own.keys() & {"enum", "const", "$ref", "anyOf", "oneOf", "allOf", *rules}
        if not isinstance(kind, str) or kind == "string" or kind in types or clash:
            return None
        types.append(kind)
        rules |= own
    return {"type": [*types, "string"], **rules, **_TEXT}


def _inside(node: Any) -> Any:
    """Return a schema whose parts take interpolations; what it is itself stays."""
    if not isinstance(node, dict):
        return node
    changed = {key: value for key, value in node.items() if key != "title"}
    if "description" in changed:
        changed["description"] = _said(changed["description"])
    for key in ("items", "additionalProperties"):
        if isinstance(changed.get(key), dict):
            changed[key] = _open(changed[key])
    if "properties" in changed:
        changed["properties"] = {k: _open(v) for k, v in changed["properties"].items()}
    if "prefixItems" in changed:
        changed["prefixItems"] = [_open(item) for item in changed["prefixItems"]]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in changed:
            changed[key] = [_inside(member) for member in changed[key]]
    return changed


def _summary(component: Component) -> str:
    summary = component.spec.summary.removesuffix(".")
    return f"{summary}. From {component.distribution} {component.version}."


def _said(text: str) -> str:
    """Return help as editors show it: Markdown."""
    return text.replace("``", "`")
