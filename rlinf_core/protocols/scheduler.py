"""Scheduler: searches for a placement when a run says ``placement: auto``.

The target of a scheduler component is called as ``target(config)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Scheduler(Protocol):
    """Proposes where each group of workers runs."""

    def place(self, graph: Mapping[str, Any], profile: Mapping[str, Any]) -> Mapping[str, str]:
        """Return a placement, component to resources.

        Args:
            graph: the traced flow as plain data: groups, channels, sizes.
            profile: measured seconds and bytes per group; what is missing is unknown.
        """
        ...
