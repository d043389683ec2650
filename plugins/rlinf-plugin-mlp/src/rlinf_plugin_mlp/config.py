"""Options of the model ``mlp``. A new option goes here, with its help below it; no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlinf_core.api import Config

Width = Annotated[int, Field(ge=1, le=65_536)]


class MLPConfig(Config):
    """A Gaussian actor and a critic, two networks of the same hidden layers."""

    hidden: tuple[Width, ...] = (128, 128)
    """Widths of the hidden layers, from the state on; of the actor and of the critic."""

    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """What stands between the layers; tanh is what Andrychowicz et al. 2021 recommend."""

    log_std_init: float = Field(default=-0.5, ge=-10.0, le=2.0)
    """Logarithm of the first standard deviation of actions, in units of half an action range.
    -0.5 is 0.61: wide enough to explore, and nine of ten first samples lie within the bounds
    (at 0, a third would be clamped)."""

    normalize_observations: bool = True
    """Subtract the mean of the states seen so far and divide by their deviation."""

    observation_clip: float = Field(default=10.0, gt=0.0)
    """Normalised states are clipped to plus and minus this many deviations."""
