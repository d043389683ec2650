"""Options of the algorithm ``ppo``. A new option goes here, with its help below it; no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rlinf_core.api import Config


class PPOConfig(Config):
    """Proximal policy optimisation with a critic."""

    gamma: float = Field(default=0.99, ge=0.0, le=1.0)
    """Discount per decision, that is per chunk of actions, not per simulator step."""

    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """How far advantages look ahead: 0 trusts the critic, 1 only the rewards."""

    reward_scale: float = Field(default=1.0, gt=0.0)
    """Rewards are multiplied by this before anything else; logged returns are not."""

    normalize_advantages: bool = True
    """Give advantages mean 0 and deviation 1, over the valid rows of the whole rollout."""

    logprob_level: Literal["token", "action", "chunk"] = "chunk"
    """What one probability ratio is of: a whole chunk, an action of it, or one of its dimensions.
    The model's own level must be at least as fine."""

    clip_ratio: float = Field(default=0.2, gt=0.0, lt=1.0)
    """How far the probability ratio may move from 1 before its gradient is cut."""

    clip_ratio_high: float | None = Field(default=None, gt=0.0)
    """Another limit for ratios above 1, as in DAPO; null means ``clip_ratio``."""

    decoupled: bool = False
    """Clip around the weights that an update starts from, and correct for the older ones that acted
    by an importance weight. For asynchronous runs (``collect.max_staleness``)."""

    behave_weight_threshold: float | None = Field(default=None, gt=0.0)
    """With ``decoupled``: decisions of a greater importance weight do not push; null keeps all."""

    dual_clip: float | None = Field(default=None, gt=1.0)
    """The loss of a bad action is at most this times its advantage; null means no limit."""

    value_coefficient: float = Field(default=0.5, ge=0.0)
    """Weight of the critic's loss, which is half the squared error."""

    value_clip: float | None = Field(default=None, gt=0.0)
    """How far a value may move in one iteration, in units of return; null means freely."""

    huber_delta: float | None = Field(default=None, gt=0.0)
    """Beyond this error the critic's loss grows linearly; null means squared everywhere."""

    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus, in reward per nat."""

    target_kl: float | None = Field(default=None, gt=0.0)
    """Stop this iteration's updates once ``approx_kl`` exceeds this, in nats; null means never."""
