"""Decoupled PPO: the policy that acted and the policy that the clip is around are two.

Asynchronous training learns from actions that older weights drew. The loss clips around a recent
*proximal* policy and corrects for the older *behaviour* policy with an importance weight. What is
about stale data belongs here; clipping itself is in ``losses.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf_core.rl.aggregate import Aggregate, Metrics, token_mean
from rlinf_core.rl.losses import detached, finite_exp, ppo_terms, valid_share
from rlinf_core.rl.masks import Count, masked_mean, require, require_same_shape, where_valid


def decoupled_ppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    proximal_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    behave_weight_threshold: float | None = None,
    aggregate: Aggregate = token_mean,
    count: Count = None,
) -> tuple[Tensor, Metrics]:
    """PPO whose clip is around a proximal policy other than the one that acted, for stale data.

    The loss of :func:`~rlinf_core.rl.losses.ppo_loss` around the proximal policy, times ``w =
    exp(proximal - old)``, over the steps of :func:`counted_steps`. Hilton et al. 2021, arXiv
    2110.00641, Sec. 3; for asynchronous training AReaL, arXiv 2505.24298, Sec. 5.2.

    Args:
        logprobs: under the policy that is trained, any shape, in nats; carries the gradient.
        old_logprobs: under the policy that acted, the same shape.
        proximal_logprobs: under the proximal policy, the same shape; a constant. Where they were
            not stored, see :func:`interpolate_proximal`.
        advantages: the same shape.
        mask: bool, the same shape.
        clip_low: how far the ratio to the proximal policy may fall below 1.
        clip_high: how far it may rise above 1.
        dual_clip: the bound ``c > 1`` of the dual clip, or None.
        behave_weight_threshold: steps with a greater ``w`` are left out; None keeps all.
        aggregate: how steps become one number.
        count: the global count of that aggregation over the *counted* steps; None if this is the
            whole minibatch.

    Returns:
        the loss, a scalar, and the metrics ``policy_loss``, ``clip_fraction``, ``dual_fraction``
        and ``ratio`` of :func:`~rlinf_core.rl.losses.ppo_loss`, ``proximal_kl = mean(proximal -
        logp)`` over valid steps, ``behav_kl = mean(old - proximal)`` over counted ones, and
        ``behav_clip_fraction``, the share of valid steps that were left out.

    Raises:
        RLInputError: shapes differ, or an option is out of range.
    """
    counted = counted_steps(
        old_logprobs, proximal_logprobs, mask, behave_weight_threshold=behave_weight_threshold
    )
    terms = ppo_terms(
        logprobs,
        proximal_logprobs,
        advantages,
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )
    behave_log_weight = (
        where_valid(proximal_logprobs, counted) - where_valid(old_logprobs, counted)
    ).detach()
    mean = aggregate(terms.loss * finite_exp(behave_log_weight), counted)
    metrics = detached(
        policy_loss=mean,
        clip_fraction=valid_share(terms.clipped, mask, terms.loss),
        dual_fraction=valid_share(terms.dual_clipped, mask, terms.loss),
        ratio=masked_mean(terms.ratio, mask),
        proximal_kl=masked_mean(-terms.log_ratio, mask),
        behav_kl=masked_mean(-behave_log_weight, counted),
        behav_clip_fraction=valid_share(~counted, mask, terms.loss),
    )
    return mean.over(count), metrics


@torch.no_grad()
def counted_steps(
    old_logprobs: Tensor,
    proximal_logprobs: Tensor,
    mask: Tensor,
    *,
    behave_weight_threshold: float | None,
) -> Tensor:
    """Return the steps that decoupled PPO counts: valid, and ``exp(proximal - old) <= threshold``.

    Its sum over the minibatch is the ``count`` of :func:`decoupled_ppo_loss`.

    Args:
        old_logprobs: under the policy that acted, any shape, in nats.
        proximal_logprobs: under the proximal policy, the same shape.
        mask: bool, the same shape.
        behave_weight_threshold: positive, or None for no threshold.

    Raises:
        RLInputError: shapes differ, or the threshold is not positive.
    """
    require_same_shape(old_logprobs=old_logprobs, proximal_logprobs=proximal_logprobs, mask=mask)
    if behave_weight_threshold is None:
        return mask
    require(
        behave_weight_threshold > 0,
        f"behave_weight_threshold is {behave_weight_threshold}, but must be positive",
    )
    return mask & ((proximal_logprobs - old_logprobs).exp() <= behave_weight_threshold)


@torch.no_grad()
def staleness_weight(versions: Tensor, current_version: int) -> Tensor:
    """Return how far the proximal policy lies between the acting (0) and the current one (1).

    ``alpha = (current - 1 - version) / (current - version)``: the proximal policy is the one before
    the current. 0 where the version is unknown (negative) or not older than the current.

    Args:
        versions: integers, any shape: the version of the weights that drew each step.
        current_version: of the weights that are trained.

    Returns:
        the same shape, float64, in [0, 1).
    """
    age = (current_version - versions).double()
    stale = (versions >= 0) & (age > 0)
    return torch.where(stale, (age - 1) / age.clamp(min=1), 0.0)


@torch.no_grad()
def interpolate_proximal(logprobs: Tensor, old_logprobs: Tensor, alpha: Tensor) -> Tensor:
    """Approximate the proximal log-probs as ``old + alpha * (logp - old)``, a constant.

    Saves the forward pass that would compute them: AReaL's proximal approximation ("loglinear").

    Args:
        logprobs: under the policy that is trained, any shape, in nats.
        old_logprobs: under the policy that acted, the same shape.
        alpha: from :func:`staleness_weight`, the same shape.

    Raises:
        RLInputError: shapes differ.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, alpha=alpha)
    return old_logprobs + alpha.to(logprobs.dtype) * (logprobs - old_logprobs)
