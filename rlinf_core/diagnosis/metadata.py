"""The first stage of a check: what a plugin's metadata say. Nothing of it is imported.

A check is a function of the distribution that was found; add it to :data:`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packaging.requirements import InvalidRequirement
from packaging.specifiers import SpecifierSet

import rlinf_core
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.plugins.discovery import GROUP, Found
from rlinf_core.plugins.records import CORE, PREFIX
from rlinf_core.plugins.versions import core_range, misfit

_LOWER, _UPPER = {">=", ">", "==", "===", "~="}, {"<", "<=", "==", "===", "~="}


def check_metadata(found: Found) -> list[Finding]:
    """Return what each check of :data:`CHECKS` found."""
    return [finding for check in CHECKS for finding in check(found)]


def _installed(found: Found) -> Iterator[Finding]:
    yield _ok("installed", f"version {found.version} is installed, as {found.origin} says")


def _name(found: Found) -> Iterator[Finding]:
    if found.distribution == CORE or found.distribution.startswith(PREFIX):
        yield _ok("name", f"{found.distribution} is what the core would tell people to install")
        return
    yield Finding(
        Stage.METADATA,
        "name",
        Outcome.WARNING,
        f"the distribution is named {found.distribution!r}, and where a component is missing the "
        f"core tells people to install {PREFIX}NAME",
        f"name it {PREFIX}NAME, NAME being that of its component",
    )


def _entry_point(found: Found) -> Iterator[Finding]:
    if len(found.entries) == 1:
        yield _ok("entry-point", f"one in the group {GROUP}, naming {found.entries[0][1]}")
        return
    yield Finding(
        Stage.METADATA,
        "entry-point",
        Outcome.WARNING,
        f"{len(found.entries)} entry points in the group {GROUP} name one module, which is loaded "
        "once",
        "keep one of them",
    )


def _core_range(found: Found) -> Iterator[Finding]:
    if found.distribution == CORE:
        return
    try:
        allowed = core_range(found.requires)
    except InvalidRequirement as error:
        text = f"its requirement on the core cannot be read: {error}"
        yield _failed("core-range", text, f"require {CORE}{_next_range()}")
        return
    missing = [
        word
        for word, operators in (("lower", _LOWER), ("upper", _UPPER))
        if not _has(allowed, operators)
    ]
    if missing:
        shown = f"{CORE}{allowed}" if allowed else "no version of the core in particular"
        yield _failed(
            "core-range",
            f"it requires {shown}: there is no {' and no '.join(missing)} bound, so pip may "
            "install it beside a core that it was not made for",
            f"require {CORE}{_next_range()}",
        )
    else:
        yield _ok("core-range", f"it requires {CORE}{allowed}, bounded on both sides")
    if reason := misfit(found.distribution, found.version, allowed, rlinf_core.__version__):
        said, _, remedy = reason.partition(". Take ")
        yield _failed("core-version", said, f"take {remedy}")
    else:
        yield _ok("core-version", f"{CORE} {rlinf_core.__version__} is installed, which fits")


def _has(allowed: SpecifierSet, operators: set[str]) -> bool:
    return any(specifier.operator in operators for specifier in allowed)


def _next_range() -> str:
    major, minor = rlinf_core.__version__.split(".")[:2]
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def _ok(check: str, sentence: str) -> Finding:
    return Finding(Stage.METADATA, check, Outcome.OK, sentence)


def _failed(check: str, sentence: str, remedy: str) -> Finding:
    return Finding(Stage.METADATA, check, Outcome.FAILED, sentence, remedy)


CHECKS: tuple[Callable[[Found], Iterator[Finding]], ...] = (
    _installed,
    _name,
    _entry_point,
    _core_range,
)
"""In order. A check yields what it found, once or more."""
