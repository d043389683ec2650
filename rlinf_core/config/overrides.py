"""Overrides from the command line: read with hydra's grammar, applied to plain data by us.

``a.b=1`` sets, ``~a.b`` removes, and ``~a.b=1`` removes what is 1, as hydra has it. ``+a.b=1`` is
the same as ``a.b=1``: a key that has a default need not stand in the file. Whether a key exists at
all is for validation to say. A choice among the files of a group (``model=mlp``) is left to hydra;
see :mod:`rlinf_core.config.compose`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rlinf_core.config.files import TOO_MANY_DIGITS
from rlinf_core.config.origins import COMMAND_LINE, Origins, is_index, join
from rlinf_core.config.schema import SECTIONS, RunConfig, as_section
from rlinf_core.errors import ConfigError


@dataclass(frozen=True)
class Assignment:
    """One override.

    Args:
        text: as typed.
        key: dotted path of a value, or path of a group.
        value: plain data; where it removes, what must be there for that, or None for anything.
        removes: whether it removes rather than sets.
        grouped: whether it can only be about a group (``key@package=...``).
    """

    text: str
    key: str
    value: Any
    removes: bool = False
    grouped: bool = False


def parse(overrides: Iterable[str]) -> list[Assignment]:
    """Return overrides, read.

    Raises:
        ConfigError: with a sentence for each that cannot be read.
    """
    parser = OverridesParser.create()
    found, findings = [], []
    for text in overrides:
        try:
            found.append(_assignment(text, parser.parse_override(text)))
        except (HydraException, RecursionError) as error:
            detail = str(error).splitlines()[0].partition(" expecting ")[0]
            findings.append(
                f"{COMMAND_LINE}: {text!r} cannot be read as an override; wanted key=value, such "
                f"as collect.envs=8, with quotes around text that holds any of ,=:{{}}[]'\" "
                f"({detail})"
            )
        except ValueError:  # Python's own limit to the digits that it reads
            findings.append(f"{COMMAND_LINE}: {_short(text)}: holds {TOO_MANY_DIGITS}")
        except ConfigError as error:
            findings += error.findings
    if findings:
        raise ConfigError(findings)
    return found


def apply(data: dict[str, Any], assignments: Iterable[Assignment], origins: Origins) -> list[str]:
    """Apply overrides to plain data in place; return what is wrong with them."""
    return [
        f"{COMMAND_LINE}: {assignment.text}: {finding}"
        for assignment in assignments
        if (finding := _apply(data, assignment, origins))
    ]


def _assignment(text: str, override: Override) -> Assignment:
    if override.is_sweep_override():
        raise ConfigError(
            [
                f"{COMMAND_LINE}: {text!r} gives several values, and a run takes one. "
                f"For a list write {override.key_or_group}=[a,b]; for text with a comma put "
                "quotes around it"
            ]
        )
    if not override.key_or_group:
        raise ConfigError([f"{COMMAND_LINE}: {text!r} names no option; wanted key=value"])
    if override.key_or_group.split(".")[0].split("/")[0] == "hydra":
        raise ConfigError([f"{COMMAND_LINE}: {text!r}: a run has no settings of hydra's own"])
    return Assignment(
        text,
        override.key_or_group,
        override.value(),
        removes=override.is_delete(),
        grouped=override.package is not None,
    )


def _apply(data: dict[str, Any], assignment: Assignment, origins: Origins) -> str:
    *above, last = assignment.key.split(".")
    node: Any = data
    path = ""
    for part in above:
        path = join(path, part)
        child = _expanded(_child(node, part), path)
        if child is None and assignment.removes:
            return "there is nothing to remove"
        if child is None and path == "loggers":  # a default that is no mapping to be filled
            child = RunConfig().model_dump(mode="json")[path]
        if not isinstance(child, dict | list | None):
            return f"{path} is {child!r}, which holds no {assignment.key[len(path) + 1 :]!r}"
        if not _put(node, part, {} if child is None else child):
            return f"{path}: there is no such item in the list"
        node = _child(node, part)
    if assignment.removes:
        return _remove(node, last, assignment, origins)
    value = assignment.value
    old = _expanded(_child(node, last), assignment.key)
    if isinstance(old, dict) and isinstance(value, dict):
        for key, item in value.items():
            old[key] = item
            origins.put(join(assignment.key, key), COMMAND_LINE)
        value = old
    else:
        origins.put(assignment.key, COMMAND_LINE)
    return "" if _put(node, last, value) else f"{assignment.key}: there is no such item in the list"


def _expanded(value: Any, path: str) -> Any:
    """Return a section in its long form, so that an option can be set beside its name."""
    return as_section(value) if path in SECTIONS or path.startswith("loggers.") else value


def _child(node: Any, part: str) -> Any:
    if isinstance(node, list):
        return node[int(part)] if is_index(part, node) else None
    return node.get(part)


def _put(node: Any, part: str, value: Any) -> bool:
    if isinstance(node, dict):
        node[part] = value
        return True
    if is_index(part, node):
        node[int(part)] = value
        return True
    return False


def _remove(node: Any, part: str, assignment: Assignment, origins: Origins) -> str:
    key, wanted = assignment.key, assignment.value
    if not isinstance(node, dict) or part not in node:
        return "there is nothing to remove"
    if wanted is not None and _expanded(node[part], key) != _expanded(wanted, key):
        return (
            f"{key} is {node[part]!r} and not {wanted!r}, so it is not removed; "
            f"~{key} removes it whatever it is"
        )
    del node[part]
    origins.forget(key)
    return ""


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[:limit]}...")
