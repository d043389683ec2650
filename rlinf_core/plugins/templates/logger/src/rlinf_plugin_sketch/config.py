"""Options of the logger ``sketch``. A new option goes here, with its help below it."""

from pydantic import Field

from rlinf_core.api import Config


class SketchConfig(Config):
    """Which numbers to write, and how often."""

    columns: tuple[str, ...] = ("env_steps", "episode/success_once", "episode/return")
    """Names of metrics, one column each, after a column with the iteration."""

    every: int = Field(default=1, ge=1)
    """Iterations between rows."""
