"""Options of the algorithm ``sketch``. A new option goes here, with its help below it; no torch."""

from pydantic import Field

from rlinf_core.api import Config


class SketchConfig(Config):
    """The policy gradient with a critic. Use each row once: ``update: {epochs: 1}``."""

    gamma: float = Field(default=0.99, ge=0.0, le=1.0)
    """Discount per decision, that is per chunk of actions."""

    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """How far advantages look ahead: 0 trusts the critic, 1 only the rewards."""

    value_coefficient: float = Field(default=0.5, ge=0.0)
    """Weight of the critic's loss, which is half the squared error."""
