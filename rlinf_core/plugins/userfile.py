"""Changing the user's own configuration file: which plugins are enabled.

The file belongs to the user: comments and order are kept, what is malformed is not touched, and a
change is written as a whole or not at all. The text is edited where PyYAML says that a list stands:
libraries that write a file anew and keep comments lose those beside a removed item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.utils import canonicalize_name

from rlinf_core.errors import ConfigError, RequestError
from rlinf_core.files import write_text
from rlinf_core.plugins.discovery import choose_distributions, discover
from rlinf_core.plugins.records import CORE
from rlinf_core.plugins.settings import (
    EVERY,
    Layer,
    PluginSettings,
    read_layer,
    read_user_file,
    user_file,
)

_NEW = "# Which plugins rlinf loads. A run's own plugins: section wins over this file.\n"


@dataclass(frozen=True)
class Changes:
    """What came of a request.

    Args:
        path: the user's file.
        changed: distributions that were switched.
        unchanged: distributions that were as wanted already.
    """

    path: Path
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


def switch(names: Sequence[str], on: bool) -> Changes:
    """Enable or disable distributions in the user's file.

    Args:
        names: of distributions, also without their prefix.
        on: whether to enable them.

    Raises:
        RequestError: a name is unknown or the core's, or the file cannot be read or written.
    """
    path = user_file()
    layer = read_user_file(path) if path.exists() else Layer(str(path))
    found, rejected = discover()
    installed = {f.distribution for f in found} | {r.distribution for r in rejected}
    # What is gone can still be taken off a list.
    chosen = choose_distributions(names, installed | layer.disable - {EVERY} | layer.enable)
    if CORE in chosen and not on:
        raise RequestError(f"{CORE} itself cannot be disabled")
    changed, enable, disable = [], set(layer.enable), set(layer.disable)
    for name in chosen:
        is_on = not PluginSettings((layer,)).why_disabled(name)
        if is_on is on:
            continue
        changed.append(name)
        if on:
            disable.discard(name)
            enable |= {name} if EVERY in disable else set()
        else:
            enable.discard(name)
            disable |= set() if EVERY in disable else {name}
    if changed:
        _write(path, layer, {"enable": enable, "disable": disable})
    return Changes(path, tuple(changed), tuple(n for n in chosen if n not in changed))


def _write(path: Path, layer: Layer, wanted: dict[str, set[str]]) -> None:
    """Write the file with other lists, and everything else as it is."""
    target = path.resolve()  # a link to a file stays one
    before: dict[str, frozenset[str]] = {"enable": layer.enable, "disable": layer.disable}
    try:
        text = target.read_bytes().decode() if target.exists() else _NEW
        for key, names in wanted.items():
            for name in sorted(before[key] - names):
                text = _without(text, key, name)
            for name in sorted(names - before[key]):
                text = _with(text, key, name)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    _check(path, text, layer, wanted)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error}; nothing was changed") from error


def _check(path: Path, text: str, before: Layer, wanted: dict[str, set[str]]) -> None:
    """Refuse a text that would not say exactly what is wanted: a list shared by an alias, say."""
    try:
        after = read_layer(str(path), (yaml.safe_load(text) or {}).get("plugins"))
    except (ConfigError, yaml.YAMLError):
        after = None
    lists = frozenset(wanted["enable"]), frozenset(wanted["disable"])
    kept = after is not None and dict(after.prefer or {}) == dict(before.prefer or {})
    if after is None or not kept or (after.enable, after.disable) != lists:
        raise RequestError(
            f"{path} cannot be changed without changing what else it says; nothing was changed. "
            f"Put this into it by hand: plugins: {{enable: {sorted(lists[0])}, "
            f"disable: {sorted(lists[1])}}}"
        )


# --- one list of the file ------------------------------------------------------------------------


def _without(text: str, key: str, name: str) -> str:
    """Return the text with a distribution taken off a list."""
    _, node = _list(text, key)
    assert isinstance(node, yaml.SequenceNode)  # the file was read before, and names it there
    index = [str(canonicalize_name(item.value)) for item in node.value].index(name)
    start, end = _span(node.value[index])
    if not node.flow_style:  # its line goes, with whatever stands behind it
        start, end = text.rfind("\n", 0, start) + 1, _line_end(text, end)
    elif index + 1 < len(node.value):
        end = _span(node.value[index + 1])[0]
    elif index:
        start = _span(node.value[index - 1])[1]
    return text[:start] + text[end:]


def _with(text: str, key: str, name: str) -> str:
    """Return the text with a distribution put on a list, which is made if it is not there."""
    holder, node = _list(text, key)
    if isinstance(node, yaml.SequenceNode):
        if not node.value:
            return _insert(text, node.start_mark.index + 1, name)
        if node.flow_style:
            return _insert(text, _span(node.value[-1])[1], f", {name}")
        line = f"{' ' * node.start_mark.column}- {name}\n"
        return _insert(text, _line_end(text, _span(node.value[-1])[1]), line)
    if node is not None:  # a key without a value
        return _filled(text, node, f"[{name}]")
    if isinstance(holder, yaml.MappingNode):
        return _with_key(text, holder, f"{key}: [{name}]")
    if holder is not None:
        return _filled(text, holder, f"{{{key}: [{name}]}}")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        return _with_key(text, root, f"plugins: {{{key}: [{name}]}}")
    return _insert(text, len(text), f"plugins:\n  {key}: [{name}]\n")


def _list(text: str, key: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return what stands in ``plugins``, and in a key of it; None where there is no such key."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    holder = _value(root, "plugins")
    return holder, _value(holder, key)


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _with_key(text: str, mapping: yaml.MappingNode, entry: str) -> str:
    """Put an entry before the others of a mapping."""
    if mapping.flow_style:
        more = ", " if mapping.value else ""
        return _insert(text, mapping.start_mark.index + 1, entry + more)
    column = mapping.start_mark.column
    return _insert(text, mapping.start_mark.index, f"{entry}\n{' ' * column}")


def _filled(text: str, empty: yaml.Node, value: str) -> str:
    """Put a value where a key has none, or ``null``."""
    start, end = _span(empty)
    space = "" if text[start - 1 : start].isspace() else " "
    return text[:start] + space + value + text[end:]


def _insert(text: str, place: int, what: str) -> str:
    before = text[:place]
    if what.endswith("\n") and before and not before.endswith("\n"):
        before += "\n"  # the file's last line had no end
    return before + what + text[place:]


def _line_end(text: str, place: int) -> int:
    """Return where the next line begins."""
    return end + 1 if (end := text.find("\n", place)) >= 0 else len(text)


def _span(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index
