"""Options of the algorithm ``grpo``. A new option goes here, with its help below it; no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from rlinf_core.api import Config


class GRPOConfig(Config):
    """Group relative policy optimisation, without a critic."""

    group_size: int = Field(default=8, le=1_000_000)
    """Consecutive environments that start from one initial state and are compared with one
    another; at least 2."""

    normalize_by_std: bool = True
    """Divide by the standard deviation of the group's scores, as in GRPO; false only subtracts
    their mean, as in Dr. GRPO."""

    group_reward_min: float | None = None
    """Groups whose mean score is below this are left out, as too hard; null leaves none out."""

    group_reward_max: float | None = None
    """Groups whose mean score is above this are left out, as too easy; null leaves none out."""

    aggregation: Literal["episode", "decision"] = "episode"
    """What weighs the same in the loss: every episode, as in GRPO, or every decision, as in DAPO,
    so that long episodes weigh more."""

    logprob_level: Literal["token", "action", "chunk"] = "chunk"
    """What one probability ratio is of: a whole chunk, an action of it, or one of its dimensions.
    The model's own level must be at least as fine."""

    clip_ratio: float = Field(default=0.2, gt=0.0, lt=1.0)
    """How far the probability ratio may move from 1 before its gradient is cut."""

    clip_ratio_high: float | None = Field(default=None, gt=0.0)
    """Another limit for ratios above 1, as in DAPO; null means ``clip_ratio``."""

    dual_clip: float | None = Field(default=None, gt=1.0)
    """The loss of a bad action is at most this times its advantage; null means no limit."""

    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus, in units of advantage per nat."""

    target_kl: float | None = Field(default=None, gt=0.0)
    """Stop this iteration's updates once ``approx_kl`` exceeds this, in nats; null means never."""

    @field_validator("group_size")
    @classmethod
    def _has_somebody_to_compare_with(cls, size: int) -> int:
        if size < 2:
            raise ValueError(
                f"a group of {size} compares an episode with itself and learns nothing; wanted at "
                "least 2, such as 8 (an algorithm with a critic, such as ppo, needs no group)"
            )
        return size

    @model_validator(mode="after")
    def _some_group_can_be_kept(self) -> Self:
        low, high = self.group_reward_min, self.group_reward_max
        if low is not None and high is not None and low > high:
            raise ValueError(
                f"group_reward_min is {low} and group_reward_max {high}, between which no score "
                "lies; the first must not be above the second"
            )
        return self
