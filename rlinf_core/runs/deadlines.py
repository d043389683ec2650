"""Deadlines and restarts of a run's groups, from ``cluster.deadlines`` and ``cluster.restarts``."""

from __future__ import annotations

from collections.abc import Iterator

from rlinf_core.config.validate import Run
from rlinf_core.errors import Problem, did_you_mean
from rlinf_core.protocols.runtime import Deadlines
from rlinf_core.runs.interfaces import interfaces


def deadlines(run: Run, component: str) -> Deadlines:
    """Return how long the workers of a component may take."""
    chosen = run.config.cluster.deadlines
    own = getattr(chosen, component)
    if isinstance(own, dict):
        return Deadlines(chosen.start, chosen.call, own)
    return Deadlines(chosen.start, own)


def restarts(run: Run, component: str) -> int:
    """Return how many failures of a group's workers the run survives."""
    return int(getattr(run.config.cluster.restarts, component, 0))


def unknown_methods(run: Run) -> Iterator[Problem]:
    """Yield a problem for each deadline of a method that there is not."""
    for target, interface in interfaces(run).items():
        component = target.partition(":")[0].rpartition(".")[2]
        own = getattr(run.config.cluster.deadlines, component)
        for name in sorted(own if isinstance(own, dict) else ()):
            if name not in interface:
                yield Problem(
                    f"cluster.deadlines.{component}.{name}",
                    f"{component} has no method {name!r}.{did_you_mean(name, interface)}",
                    f"wanted one of: {', '.join(sorted(interface))}",
                )
