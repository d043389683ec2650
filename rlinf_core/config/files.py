"""Reading one YAML file: what is wrong with it, and on which line each key stands.

Hydra merges the files; this module reads each once more for what hydra does not keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from rlinf_core.config.origins import join, shown
from rlinf_core.errors import ConfigError

SUFFIX = ".yaml"

TOO_MANY_DIGITS = "a number of more digits than can be read; put quotes around it if it is text"
"""Of a number that Python refuses to read."""


def read_lines(path: Path) -> dict[str, int]:
    """Return the line of every key and list item of a YAML file, by dotted path.

    Raises:
        ConfigError: it is no file that holds one YAML mapping with each key once.
    """
    name = shown(path)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError([f"{name}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name}: is no text file in UTF-8; wanted YAML"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([yaml_sentence(error, name)]) from error
    except RecursionError as error:
        raise ConfigError([f"{name}: is nested too deeply"]) from error
    if root is None:
        raise ConfigError([f"{name}: is empty; wanted a mapping of a run's sections"])
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            [f"{name}:{_line(root)}: found a {_kind(root)}, wanted a mapping of sections"]
        )
    lines: dict[str, int] = {}
    twice = []
    for key, line in _walk(root, "", ()):
        if key in lines and not key.endswith("<<"):
            twice.append(f"{name}:{line}: {key}: is given again, after line {lines[key]}; keep one")
        lines[key] = line
    if twice:
        raise ConfigError(twice)
    if wrong := [f"{name}:{line}: {key}: {text}" for key, line, text in _unread(root, "", ())]:
        raise ConfigError(wrong)
    return lines


def yaml_sentence(error: yaml.YAMLError, name: str) -> str:
    """Return what is wrong with a YAML file, with its line where that is known."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if mark is None:
        return f"{name}: is no YAML: {problem}"
    return f"{name}:{mark.line + 1}: is no YAML: {problem} (column {mark.column + 1})"


def _walk(node: yaml.Node, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    if id(node) in above:  # an alias of something that it lies in
        return
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = join(path, key.value)
            yield below, _line(key)
            yield from _walk(value, below, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            below = join(path, index)
            yield below, _line(value)
            yield from _walk(value, below, above)


def _unread(node: yaml.Node, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, int, str]]:
    """Yield where a value stands that YAML takes for an integer and that is none, or not meant."""
    if id(node) in above:
        return
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _unread(key, join(path, "(a key)"), above)
            yield from _unread(value, join(path, key.value), above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _unread(value, join(path, index), above)
    elif isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int":
        if ":" in node.value:
            number = yaml.constructor.SafeConstructor().construct_yaml_int(node)
            quotes = f'put quotes around it: "{node.value}"'
            yield path, _line(node), f"found {node.value}, which YAML reads as {number}; {quotes}"
            return
        try:
            yaml.constructor.SafeConstructor().construct_yaml_int(node)
        except ValueError:
            many = len(node.value) > 1000
            found = (
                f"found {TOO_MANY_DIGITS}"
                if many
                else f"found {node.value!r}, which looks like a number and is none"
            )
            yield path, _line(node), found


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    return "list" if isinstance(node, yaml.SequenceNode) else "single value"
