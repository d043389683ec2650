"""Options and facts of what this plugin provides; no simulator, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field

from rlinf_core.api import Config, Facts, Spaces

WIDTHS = {"reach": (39, 4), "pushcube": (35, 4)}
"""Of the observed state and of an action, by task."""


class PeersConfig(Config):
    """One of the tasks in ``benchmarks/peers/tasks.py``."""

    task: Literal["reach", "pushcube"] = "reach"
    """Name of the task."""

    processes: int | None = Field(default=None, ge=1, le=1024)
    """Processes that share the environments. By default one per processor."""


def make_spaces(task: str) -> Spaces:
    """Return what one environment shows and takes."""
    state, action = WIDTHS[task]
    return Spaces(
        observation=spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (state,), np.float32)}),
        action=spaces.Box(-1.0, 1.0, (action,), np.float32),
    )


def facts(config: PeersConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the facts of a configured task."""
    return Facts(parameters=0, bytes=0, spaces=make_spaces(config.task))


class BusyConfig(Config):
    """What one environment costs, each step that it simulates or is acted on."""

    milliseconds: float = Field(default=0.25, ge=0.0)
    """Of each environment."""

    by: Literal["computing", "sleeping"] = "computing"
    """Computing takes that much time of a processor; sleeping takes that long and no processor, as
    waiting for a device of another kind does."""


def busy_facts(config: BusyConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the facts of the simulator ``busy``, whose world is the toy of the core's tests."""
    shown = spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    return Facts(
        parameters=0, bytes=0, spaces=Spaces(shown, spaces.Box(-1.0, 1.0, (2,), np.float32))
    )
