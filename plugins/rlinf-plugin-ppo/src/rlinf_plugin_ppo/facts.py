"""What can be said of a configured ``ppo`` without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Facts
from rlinf_plugin_ppo.config import PPOConfig


def facts(config: PPOConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return whether advantages of one environment depend on those of others."""
    return Facts(parameters=0, bytes=0, piecewise=not config.normalize_advantages)
