"""Options of the core's own components."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rlinf_core.config.schema import Config


class DirectConfig(Config):
    """Options of the rollout engine ``direct``."""

    batch_size: int | None = Field(default=None, ge=1)
    """Rows acted on at once; null acts on all that arrive."""


class WeightsConfig(Config):
    """Options of the weight transport ``full``, and of the others, too."""

    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Convert floating-point weights to this dtype before they are sent; null sends them as they
    are, and a rollout engine that holds another dtype refuses them."""
    way: Literal["auto", "reference", "device_handle", "collective", "shared_memory", "gloo"] = (
        "auto"
    )
    """How weights get from one process to another; auto takes the first that joins both."""
    timeout: float = Field(default=600.0, gt=0, le=86_400)
    """Seconds to wait for another process; then an error names those that are missing."""


class BucketedConfig(WeightsConfig):
    """Options of the weight transport ``bucketed``."""

    bucket_mib: int = Field(default=32, ge=1, le=65_536)
    """Most MiB that are sent at a time. About four such buckets are in memory at once, for each
    process that receives."""


class ChangedConfig(BucketedConfig):
    """Options of the weight transport ``changed``."""


class ConsoleConfig(Config):
    """Options of the logger ``console``."""

    every: float = Field(default=10.0, gt=0)
    """Seconds between lines where standard error is no terminal."""
