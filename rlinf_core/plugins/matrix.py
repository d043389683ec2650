"""Which components fit together, told from what they declare and need.

Needs are between two components, so a combination fits exactly where each pair of it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlinf_core.capability import Capability, Level
from rlinf_core.specs import Component


@dataclass(frozen=True)
class Pair:
    """A component that needs something of another kind, and one of that kind.

    Args:
        component: the one that needs.
        other: the one of the other kind.
        missing: what ``other`` does not fully have, with the level that it declares.
    """

    component: Component
    other: Component
    missing: tuple[tuple[Capability, Level], ...]

    @property
    def fits(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def pairs(components: Iterable[Component]) -> list[Pair]:
    """Return every pair in which one needs something of the other's kind.

    A component's options may change what it can do (its facts say so); a run checks that again.
    """
    every = list(components)
    return [
        Pair(component, other, _missing(component, other))
        for component in every
        for kind in component.spec.needs
        for other in every
        if other.kind is kind
    ]


def _missing(component: Component, other: Component) -> tuple[tuple[Capability, Level], ...]:
    declared = other.spec.capabilities
    levels = {c: declared.get(c, Level.UNKNOWN) for c in component.spec.needs[other.kind]}
    return tuple(sorted((c, level) for c, level in levels.items() if level is not Level.FULL))
