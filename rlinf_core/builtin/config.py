"""Options of the core's own components."""

from __future__ import annotations

from pydantic import Field

from rlinf_core.config.schema import Config


class DirectConfig(Config):
    """Options of the rollout engine ``direct``."""

    batch_size: int | None = Field(default=None, ge=1)
    """Rows acted on at once; null acts on all that arrive."""


class ConsoleConfig(Config):
    """Options of the logger ``console``."""

    every: float = Field(default=10.0, gt=0)
    """Seconds between lines where standard error is no terminal."""
