"""Options of the reward ``sketch``. A new option goes here, with its help below it; no torch."""

from rlinf_core.api import Config


class SketchConfig(Config):
    """How an answer is scored."""

    right: float = 1.0
    """Reward of a right answer."""

    wrong: float = 0.0
    """Reward of any other."""
