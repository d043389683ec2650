"""Reinforce++: advantages from one score per sequence, normalised over all tokens of the batch.

There is no critic. The return of a token is what is still to come: the score at the end, less a KL
penalty on the way. Variants of REINFORCE that normalise over the batch belong here; those that
normalise within a group belong in ``groups.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf_core.rl.advantages import Advantages, token_rewards
from rlinf_core.rl.groups import center_on_group
from rlinf_core.rl.masks import accumulation_dtype, where_valid
from rlinf_core.rl.statistics import Reduce, local, masked_moments

VARIANCE_FLOOR = 1e-8
"""The least variance that returns are divided by, in units of return squared."""


@torch.no_grad()
def reinforce_pp_advantages(
    scores: Tensor,
    mask: Tensor,
    *,
    kl: Tensor | None = None,
    beta: float = 0.0,
    reduce: Reduce = local,
) -> Advantages:
    """Reinforce++: reward-to-go per token, whitened over the valid tokens of all ranks.

    ``return[t]`` is the sum over valid ``s >= t`` of the token rewards (see
    :func:`~rlinf_core.rl.advantages.token_rewards`), and ``advantage = (return - mean) /
    sqrt(max(var, 1e-8))`` with the divisor ``n``. A sequence without a valid token contributes
    nothing. Hu et al. 2025, arXiv 2501.03262.

    Args:
        scores: ``[B]``, one per sequence.
        mask: bool ``[B, L]``, the valid tokens; they may begin anywhere.
        kl: ``[B, L]``, an estimate per token in nats.
        beta: the weight of ``kl``, reward per nat.
        reduce: sums over ranks.

    Returns:
        advantages and returns, both ``[B, L]``, 0 at masked tokens.

    Raises:
        RLInputError: shapes that do not fit, a score or ``kl`` that counts and is not finite, or
            ``beta`` without ``kl``.
    """
    rewards = token_rewards(scores, mask, kl=kl, beta=beta)
    returns = where_valid(rewards.flip(-1).cumsum(-1).flip(-1), mask)  # [B, L]
    moments = masked_moments(returns, mask, reduce)
    variance = moments.variance(ddof=0)
    whitened = (returns.double() - moments.mean) / variance.clamp(min=VARIANCE_FLOOR).sqrt()
    advantages = torch.where(mask & (variance != 0), whitened, 0.0)
    return Advantages(advantages.to(accumulation_dtype(returns)), returns)


def reinforce_pp_baseline_advantages(
    scores: Tensor,
    mask: Tensor,
    group_size: int,
    *,
    kl: Tensor | None = None,
    beta: float = 0.0,
    reduce: Reduce = local,
) -> Advantages:
    """Reinforce++ with baseline: each score less the mean of its group, then Reinforce++.

    Sequences without a valid token do not count in the mean of their group. Hu et al. 2025,
    arXiv 2501.03262 (REINFORCE++ with baseline).

    Args:
        scores: ``[B]``, one per sequence, group by group; not changed.
        mask: bool ``[B, L]``, the valid tokens.
        group_size: at least 2.
        kl: ``[B, L]``, an estimate per token in nats.
        beta: the weight of ``kl``, reward per nat.
        reduce: sums over ranks.

    Returns:
        advantages and returns, both ``[B, L]``, 0 at masked tokens.

    Raises:
        RLInputError: as :func:`reinforce_pp_advantages` and
            :func:`~rlinf_core.rl.groups.grpo_advantages`.
    """
    centred = center_on_group(scores, group_size, mask.any(dim=1))
    return reinforce_pp_advantages(centred, mask, kl=kl, beta=beta, reduce=reduce)
