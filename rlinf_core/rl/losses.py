"""Losses: clipped PPO, clipped value loss, entropy.

A loss takes the tensors of one micro-batch, a mask of its valid steps and the *global* count (see
:mod:`rlinf_core.rl.aggregate`), and returns ``(loss, metrics)``. The loss is this micro-batch's
share of the loss of the whole, so gradients of micro-batches and ranks simply add, and losses
compose by addition: ``policy + 0.5 * value + 0.01 * entropy``. A metric is ``(sum, count)``.
Nothing here waits for the device.

All options are keyword-only. A new loss is a function of this form; where it shares PPO's clipping
it starts from :func:`ppo_terms`, as ``decoupled.py`` does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rlinf_core.rl.aggregate import Aggregate, Metrics, token_mean
from rlinf_core.rl.masks import (
    Count,
    Mean,
    accumulation_dtype,
    masked_mean,
    require,
    require_same_shape,
    where_valid,
)


class PPOTerms(NamedTuple):
    """The clipped objective step by step, all of the shape of the mask.

    ``loss`` carries the gradient and is 0 at masked steps. ``log_ratio`` is after its clamp,
    ``ratio`` its exponential; ``clipped`` and ``dual_clipped`` say where a clip decided the loss.
    """

    loss: Tensor
    log_ratio: Tensor
    ratio: Tensor
    clipped: Tensor
    dual_clipped: Tensor


def ppo_terms(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    clip_log_ratio_min: float | None = None,
    clip_log_ratio_max: float | None = None,
) -> PPOTerms:
    """Return the clipped PPO objective of each step; arguments as in :func:`ppo_loss`."""
    require_same_shape(
        logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages, mask=mask
    )
    require(
        0 <= clip_low < 1 and clip_high >= 0,
        f"clip_low is {clip_low} and clip_high {clip_high}: the ratio is clipped to "
        "[1 - clip_low, 1 + clip_high], so the first must lie in [0, 1) and the second be >= 0",
    )
    require(
        dual_clip is None or dual_clip > 1,
        f"dual_clip is {dual_clip}, but must be above 1: it bounds the loss of a bad action whose "
        "ratio has grown, and may not cut into the ordinary range",
    )
    advantages = where_valid(advantages, mask).detach()
    log_ratio = logprobs - old_logprobs.detach()
    if clip_log_ratio_min is not None or clip_log_ratio_max is not None:
        log_ratio = log_ratio.clamp(clip_log_ratio_min, clip_log_ratio_max)
    # Masked before anything multiplies, and once: a choice costs as much as five products.
    log_ratio = where_valid(log_ratio, mask)
    ratio = finite_exp(log_ratio)

    # The larger of the two losses, chosen beforehand: a clipped ratio has no gradient, and that of
    # torch.maximum costs more than all the rest.
    worth = -advantages
    with torch.no_grad():
        held = ratio.clamp(1 - clip_low, 1 + clip_high)
        clipped = worth * ratio < worth * held
    loss = worth * torch.where(clipped, held, ratio)
    dual_clipped = torch.zeros_like(clipped)
    if dual_clip is not None:
        bound = dual_clip * advantages.abs()
        dual_clipped = bound < loss
        loss = torch.minimum(loss, bound)
    return PPOTerms(loss, log_ratio, ratio, clipped, dual_clipped)


def ppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    clip_log_ratio_min: float | None = None,
    clip_log_ratio_max: float | None = None,
    aggregate: Aggregate = token_mean,
    count: Count = None,
) -> tuple[Tensor, Metrics]:
    """Clipped surrogate loss of PPO, with asymmetric clip and optional dual clip.

    ``max(-A * ratio, -A * clip(ratio, 1 - clip_low, 1 + clip_high))`` per step, where ``ratio =
    exp(logp - old)``: Schulman et al. 2017, arXiv 1707.06347, Eq. 7, with the sign of a loss; two
    different clips are DAPO's clip-higher, arXiv 2503.14476, Sec. 3.1. With ``dual_clip`` the
    result is at most ``dual_clip * |A|``: Ye et al. 2019, arXiv 1912.09729, Eq. 5.

    The metric ``approx_kl`` is ``mean(old - logp)``, the k1 estimate of KL(old || new) at actions
    drawn from the old policy: *positive* where the new policy has made them less likely.

    Args:
        logprobs: under the policy that is trained, any shape, in nats; carries the gradient.
        old_logprobs: under the policy that acted, the same shape.
        advantages: the same shape.
        mask: bool, the same shape.
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.
        dual_clip: the bound ``c > 1`` of the dual clip, or None.
        clip_log_ratio_min: the log-ratio is clamped to at least this, in nats, or None.
        clip_log_ratio_max: the log-ratio is clamped to at most this, in nats, or None.
        aggregate: how steps become one number.
        count: the global count of that aggregation; None if this is the whole minibatch.

    Returns:
        the loss, a scalar, and the metrics ``policy_loss``, ``clip_fraction``, ``dual_fraction``,
        ``approx_kl`` and ``ratio``.

    Raises:
        RLInputError: shapes differ, or an option is out of range.
    """
    terms = ppo_terms(
        logprobs,
        old_logprobs,
        advantages,
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        clip_log_ratio_min=clip_log_ratio_min,
        clip_log_ratio_max=clip_log_ratio_max,
    )
    mean = aggregate(terms.loss, mask)
    with torch.no_grad():
        ratio = masked_mean(terms.ratio, mask)

        def share(summed: Tensor) -> Mean:  # of terms that are 0 and false where masked
            return Mean(summed.to(ratio.n.dtype), ratio.n)

        metrics = detached(
            policy_loss=mean,
            clip_fraction=share(terms.clipped.sum()),
            dual_fraction=share(terms.dual_clipped.sum()),
            approx_kl=share(-terms.log_ratio.sum(dtype=ratio.n.dtype)),
            ratio=ratio,
        )
    return mean.over(count), metrics


def value_loss(
    values: Tensor,
    prev_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    value_clip: float,
    huber_delta: float,
    aggregate: Aggregate = token_mean,
    count: Count = None,
) -> tuple[Tensor, Metrics]:
    """Clipped value loss under Huber's function.

    ``max(h(returns - values), h(returns - clipped))`` per step, where ``clipped`` is at most
    ``value_clip`` away from the value at rollout time, and ``h(e)`` is ``e^2 / 2`` up to
    ``huber_delta`` and grows linearly from there. The clip is that of PPO implementations (Engstrom
    et al. 2020, arXiv 2005.12729, Sec. 3); Huber 1964.

    Args:
        values: what the critic says now, any shape, in units of return; carries the gradient.
        prev_values: what it said at rollout time, the same shape.
        returns: what it should say, the same shape.
        mask: bool, the same shape.
        value_clip: positive; ``math.inf`` for no clip.
        huber_delta: positive; ``math.inf`` for half the squared error.
        aggregate: how steps become one number.
        count: the global count of that aggregation; None if this is the whole minibatch.

    Returns:
        the loss, a scalar, and the metrics ``value_loss`` and ``value_clip_ratio``, the share of
        valid steps whose value has moved by more than ``value_clip``.

    Raises:
        RLInputError: shapes differ, or an option is not positive.
    """
    require_same_shape(values=values, prev_values=prev_values, returns=returns, mask=mask)
    for name, option in (("value_clip", value_clip), ("huber_delta", huber_delta)):
        require(option > 0, f"{name} is {option}, but must be positive")
    values = where_valid(values, mask)
    prev_values = where_valid(prev_values, mask).detach()
    returns = where_valid(returns, mask).detach()
    moved = values - prev_values
    clipped = prev_values + moved.clamp(-value_clip, value_clip)

    def huber(prediction: Tensor) -> Tensor:
        return F.huber_loss(prediction, returns, reduction="none", delta=huber_delta)

    mean = aggregate(torch.maximum(huber(values), huber(clipped)), mask)
    with torch.no_grad():
        share = valid_share(moved.abs() > value_clip, mask, values)
    metrics = detached(value_loss=mean, value_clip_ratio=share)
    return mean.over(count), metrics


def entropy_loss(
    entropy: Tensor, mask: Tensor, *, aggregate: Aggregate = token_mean, count: Count = None
) -> tuple[Tensor, Metrics]:
    """Minus the mean entropy over valid steps: minimising it keeps the policy exploring.

    The term S of PPO, arXiv 1707.06347, Eq. 9, with the sign of a loss.

    Args:
        entropy: any shape, in nats; carries the gradient.
        mask: bool, the same shape.
        aggregate: how steps become one number.
        count: the global count of that aggregation; None if this is the whole minibatch.

    Returns:
        the loss, a scalar, and the metric ``entropy``, the mean (with its own sign).

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    mean = aggregate(entropy, mask)
    return -mean.over(count), detached(entropy=mean)


def finite_exp(log_ratio: Tensor) -> Tensor:
    """Return ``exp(log_ratio)``, held below the square root of the largest number (44 in float32).

    An infinite ratio would make the gradient NaN even where a clip takes the step out of the loss.
    """
    return log_ratio.clamp(max=0.5 * math.log(torch.finfo(log_ratio.dtype).max)).exp()


def valid_share(flags: Tensor, mask: Tensor, like: Tensor) -> Mean:
    """Share of valid steps where ``flags`` is true, in the dtype of ``like``."""
    dtype = accumulation_dtype(like)
    return Mean((flags & mask).sum().to(dtype), mask.sum().to(dtype))


def detached(**means: Mean) -> Metrics:
    """Return means as metrics, without their graph."""
    return {name: mean.detach() for name, mean in means.items()}
