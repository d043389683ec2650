"""What components want of this machine: modules that they require, and what their probes say.

A probe may load what could crash, so it is asked in a process of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rlinf_core.diagnosis.apart import Answer, Call
from rlinf_core.plugins.resolve import import_target
from rlinf_core.specs import Readiness

SECONDS = 60.0
"""How long a probe may take: it may import a simulator and start a renderer."""


def missing_modules(names: Iterable[str]) -> list[str]:
    """Return those of some modules whose top-level package is not there; imports nothing."""
    return [name for name in names if not _there(name.partition(".")[0])]


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def probe_call(target: str, seconds: float = SECONDS) -> Call:
    """Return the call that runs the probe that a spec names."""
    return Call(f"{__name__}:run_probe", {"target": target}, seconds)


def run_probe(argument: Mapping[str, str]) -> list[dict[str, Any]]:
    """Run a probe, in this process; return what it says, as plain data.

    Raises:
        TypeError: it returned something else than rlinf_core.api.Readiness.
    """
    target = argument["target"]
    answer = list(import_target(target, "the probe")())
    for item in answer:
        if not isinstance(item, Readiness):
            raise TypeError(f"{target} returned {item!r}, wanted rlinf_core.api.Readiness")
    return [asdict(item) for item in answer]


def read_probe(answer: Answer) -> tuple[Readiness, ...]:
    """Return what a probe said, where it gave an answer."""
    return tuple(Readiness(**item) for item in answer.value or ())
