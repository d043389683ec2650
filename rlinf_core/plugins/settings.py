"""Which distributions to load, and whom to prefer: from the user's file and from a run.

Every plugin that is installed is loaded unless a layer disables it; a later layer (a run) wins
over an earlier one (the user's file), and within a layer ``enable`` wins over ``disable: ["*"]``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rlinf_core.errors import ConfigError, did_you_mean
from rlinf_core.plugins.records import CORE
from rlinf_core.specs import Kind

EVERY = "*"
"""In ``disable``: every distribution but the core and those that ``enable`` names."""

_LISTS = ("enable", "disable")
_PREFER = "wanted kind/name: distribution, such as {algorithm/ppo: rlinf-plugin-ppo}"


@dataclass(frozen=True)
class Layer:
    """What one place says about plugins.

    Args:
        origin: the place, for messages: a file or "command line".
        enable: canonical names of distributions.
        disable: canonical names of distributions, or :data:`EVERY`.
        prefer: ``kind/name`` to the distribution that provides it.
    """

    origin: str
    enable: frozenset[str] = frozenset()
    disable: frozenset[str] = frozenset()
    prefer: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PluginSettings:
    """All layers, the weakest first."""

    layers: tuple[Layer, ...] = ()

    def with_layer(self, origin: str, section: object) -> PluginSettings:
        """Return these settings with a ``plugins:`` section on top.

        Raises:
            ConfigError: the section is malformed.
        """
        return PluginSettings((*self.layers, read_layer(origin, section)))

    def why_disabled(self, distribution: str) -> str:
        """Return which place disables a distribution and how to undo it; empty if none does."""
        for layer in reversed(self.layers):
            if distribution == CORE or distribution in layer.enable:
                return ""
            if not layer.disable.isdisjoint({distribution, EVERY}):
                return (
                    f"plugins.disable of {layer.origin} names "
                    f"{distribution if distribution in layer.disable else 'every plugin'}; "
                    f"take it off that list (rlinf plugins enable {distribution} does that in your "
                    "own file), or put it into plugins.enable of the run"
                )
        return ""

    def preferred(self, kind: str, name: str) -> tuple[str, str]:
        """Return the distribution preferred for a component and the place that says so."""
        for layer in reversed(self.layers):
            if distribution := (layer.prefer or {}).get(f"{kind}/{name}"):
                return distribution, layer.origin
        return "", ""


def user_file() -> Path:
    """Return where the user's own configuration lies, whether it exists or not."""
    if given := os.environ.get("RLINF_CONFIG"):
        return Path(os.path.expanduser(given))  # pathlib raises where it knows no such home
    base = os.environ.get("XDG_CONFIG_HOME")
    return Path(base or os.path.expanduser("~/.config")) / "rlinf" / "config.yaml"


def user_settings() -> PluginSettings:
    """Return what the user's configuration file says about plugins.

    Raises:
        ConfigError: the file cannot be read, or says something nobody reads.
    """
    path = user_file()
    if not path.exists():
        if os.environ.get("RLINF_CONFIG"):
            raise ConfigError([f"RLINF_CONFIG names {path}, and there is no such file"])
        return PluginSettings()
    return PluginSettings((read_user_file(path),))


def read_user_file(path: Path) -> Layer:
    """Return what a configuration file says about plugins.

    Raises:
        ConfigError: the file cannot be read, or says something nobody reads.
    """
    from omegaconf import OmegaConf  # only here: it costs more than all the rest of this package

    try:
        data = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except Exception as error:  # YAML, encoding, permission and interpolation errors alike
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: found {data!r}, wanted a mapping with the key 'plugins'"])
    if unknown := [
        f"{path}: {key!s}: no such key.{did_you_mean(str(key), ['plugins'])} It takes: plugins"
        for key in data
        if key != "plugins"
    ]:
        raise ConfigError(unknown)
    return read_layer(str(path), data.get("plugins"))


def read_layer(origin: str, section: object) -> Layer:
    """Return a ``plugins:`` section, checked.

    Raises:
        ConfigError: it holds unknown keys, wrong types, or contradicts itself.
    """
    known = (*_LISTS, "prefer")
    if section is None:
        return Layer(origin)
    if not isinstance(section, Mapping):
        raise ConfigError(
            [f"{origin}: plugins: found {section!r}, wanted a mapping of {', '.join(known)}"]
        )
    findings = [
        f"{origin}: plugins.{key}: no such key.{did_you_mean(str(key), known)} "
        f"It takes: {', '.join(known)}"
        for key in section
        if key not in known
    ]
    given: dict[str, Any] = {}
    for key in _LISTS:
        value = section.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            findings.append(
                f"{origin}: plugins.{key}: found {value!r}, wanted a list of distributions, "
                "such as [rlinf-plugin-ppo]"
            )
            value = []
        given[key] = frozenset(n if n == EVERY else str(canonicalize_name(n)) for n in value)
    prefer = section.get("prefer") or {}
    if not isinstance(prefer, Mapping):
        findings.append(f"{origin}: plugins.prefer: found {prefer!r}, {_PREFER}")
        prefer = {}
    for key, value in prefer.items():
        kind, _, name = str(key).partition("/")
        if kind not in list(Kind):
            near = did_you_mean(kind, [k.value for k in Kind])
            findings.append(
                f"{origin}: plugins.prefer.{key}: there is no kind {kind!r}.{near} "
                f"The kinds are: {', '.join(Kind)}"
            )
        elif not name or not isinstance(value, str):
            findings.append(f"{origin}: plugins.prefer: found {{{key}: {value!r}}}, {_PREFER}")
    findings += [
        f"{origin}: plugins: {name} is both enabled and disabled; take it off one list"
        for name in sorted(given["enable"] & given["disable"])
    ]
    if CORE in given["disable"]:
        findings.append(f"{origin}: plugins.disable: {CORE} itself cannot be disabled")
    if EVERY in given["enable"]:
        findings.append(
            f"{origin}: plugins.enable: {EVERY!r} is understood in plugins.disable only; "
            "plugins are enabled unless disabled"
        )
    if findings:
        raise ConfigError(findings)
    preferred = {key: str(canonicalize_name(value)) for key, value in prefer.items()}
    return Layer(origin, prefer=preferred, **given)
