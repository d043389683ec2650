"""What can be said of a configured ``grpo`` without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Facts
from rlinf_plugin_grpo.config import GRPOConfig


def facts(config: GRPOConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return how many environments are compared with one another.

    With ``aggregation: episode`` an episode's weight depends on all the others of the rollout.
    """
    piecewise = config.aggregation != "episode"
    return Facts(parameters=0, bytes=0, group_size=config.group_size, piecewise=piecewise)
