"""Options of the model ``sketch``. A new option goes here, with its help below it; no torch."""

from pydantic import Field

from rlinf_core.api import Config


class SketchConfig(Config):
    """A linear policy."""

    log_std_init: float = Field(default=-0.5, ge=-10.0, le=2.0)
    """Logarithm of the first standard deviation of actions, in the simulator's units."""
