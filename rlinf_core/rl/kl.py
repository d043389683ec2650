"""Estimators of the KL divergence from samples, and the KL loss.

All are functions of ``x = ref - logp`` at actions drawn from the policy whose log-prob is ``logp``,
and estimate ``KL(policy || ref)`` per action, in nats. ``k1`` is unbiased, has either sign and is
*positive where the policy finds the action likelier than the reference does*; ``k3`` is unbiased
(up to its clamp) and never negative. J. Schulman, "Approximating KL divergence", 2020
(joschu.net/blog/kl-approx.html). A new estimator is a function here and an entry in `ESTIMATORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlinf_core.rl.aggregate import Aggregate, Metrics, token_mean
from rlinf_core.rl.masks import Count, masked_mean, require, require_same_shape, where_valid

Estimator = Literal["k1", "abs", "k2", "k3"]
"""The name of an estimator."""

K3_LOG_RATIO_LIMIT = 20.0
"""``x`` is clamped to plus and minus this before k3 exponentiates it, in nats."""

K3_LIMIT = 10.0
"""The largest k3, in nats."""


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return ``logp - ref``: unbiased, of high variance, of either sign.

    Args:
        logprobs: log-probs under the policy that drew the actions, any shape, in nats.
        ref_logprobs: log-probs under the reference, the same shape.

    Raises:
        RLInputError: shapes differ.
    """
    return -_log_ratio(logprobs, ref_logprobs)


def k_abs(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return ``|logp - ref|``: a distance rather than an estimate, never negative.

    Arguments and errors are those of :func:`k1`.
    """
    return _log_ratio(logprobs, ref_logprobs).abs()


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return ``(logp - ref)^2 / 2``: biased, of low variance; its gradient is that of the KL.

    Arguments and errors are those of :func:`k1`.
    """
    return _log_ratio(logprobs, ref_logprobs).square() / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return ``exp(x) - x - 1``: unbiased and never negative; the estimator of GRPO.

    ``x`` is clamped to [-20, 20] and the result to [-10, 10]. DeepSeekMath, arXiv 2402.03300,
    Eq. 4. Arguments and errors are those of :func:`k1`.
    """
    x = _log_ratio(logprobs, ref_logprobs).clamp(-K3_LOG_RATIO_LIMIT, K3_LOG_RATIO_LIMIT)
    return (torch.expm1(x) - x).clamp(-K3_LIMIT, K3_LIMIT)


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "abs": k_abs,
    "k2": k2,
    "k3": k3,
}


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    estimator: Estimator,
    aggregate: Aggregate = token_mean,
    count: Count = None,
) -> tuple[Tensor, Metrics]:
    """Return the mean KL estimate over valid tokens, to be weighed and added to a policy loss.

    Args:
        logprobs: under the policy that is trained, any shape, in nats; carries the gradient.
        ref_logprobs: under the reference, the same shape.
        mask: bool, the same shape.
        estimator: ``"k1"``, ``"abs"``, ``"k2"`` or ``"k3"``.
        aggregate: how tokens become one number.
        count: the global count of that aggregation; None if this is the whole minibatch.

    Returns:
        the loss, a scalar, and the metric ``kl``.

    Raises:
        RLInputError: shapes differ, or the estimator is unknown.
    """
    require(
        estimator in ESTIMATORS, f"KL estimator {estimator!r} is unknown; there are {[*ESTIMATORS]}"
    )
    require_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs, mask=mask)
    reference = where_valid(ref_logprobs, mask).detach()
    kl = ESTIMATORS[estimator](where_valid(logprobs, mask), reference)
    with torch.no_grad():
        metrics: Metrics = {"kl": masked_mean(kl, mask)}
    return aggregate(kl, mask).over(count), metrics


def _log_ratio(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    require_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    return ref_logprobs - logprobs
