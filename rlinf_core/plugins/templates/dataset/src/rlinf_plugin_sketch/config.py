"""Options of the dataset ``sketch``. A new option goes here, with its help below it."""

from pydantic import Field

from rlinf_core.api import Config


class SketchConfig(Config):
    """Sums of two numbers."""

    largest: int = Field(default=9, ge=0, le=1_000_000)
    """The largest number that is added."""
