"""Whether a plugin's declared range of cores holds this core, told from its metadata."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from rlinf_core.plugins.records import CORE


def core_range(requires: Iterable[str]) -> SpecifierSet:
    """Return the range of cores that ``Requires-Dist`` lines allow; empty where they name none.

    Raises:
        InvalidRequirement: a line about the core cannot be read.
    """
    allowed = SpecifierSet()
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            if canonicalize_name(line).startswith(CORE):
                raise
            continue  # about something else, which is not ours to judge
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if canonicalize_name(requirement.name) == CORE and applies:
            allowed &= requirement.specifier
    return allowed


def misfit(distribution: str, version: str, allowed: SpecifierSet, core: str) -> str:
    """Return why a plugin does not fit the core and what to do; empty where it fits."""
    if allowed.contains(core, prereleases=True):
        return ""
    failed = [s for s in allowed if not s.contains(core, prereleases=True)]
    if any(_ends_below(s, core) for s in failed):
        return (
            f"this plugin is too old for the core: {distribution} {version} was made for "
            f"{CORE}{allowed}, and {CORE} {core} is installed. Take a newer plugin: "
            f"pip install --upgrade {distribution}; or an older core: "
            f"pip install '{CORE}{allowed}'"
        )
    if any(_starts_above(s, core) for s in failed):
        return (
            f"this plugin is too new for the core: {distribution} {version} needs "
            f"{CORE}{allowed}, and {CORE} {core} is installed. Take a newer core: "
            f"pip install --upgrade '{CORE}{allowed}'"
        )
    return (
        f"{distribution} {version} excludes exactly this core ({CORE}{allowed}, and {CORE} {core} "
        f"is installed). Take others of both: pip install --upgrade {CORE} {distribution}"
    )


def _ends_below(specifier: Specifier, core: str) -> bool:
    if specifier.operator in ("<", "<="):
        return True
    return specifier.operator in ("==", "===", "~=") and _bound(specifier) < Version(core)


def _starts_above(specifier: Specifier, core: str) -> bool:
    if specifier.operator in (">", ">="):
        return True
    return specifier.operator in ("==", "===", "~=") and _bound(specifier) > Version(core)


def _bound(specifier: Specifier) -> Version:
    return Version(specifier.version.removesuffix(".*"))
