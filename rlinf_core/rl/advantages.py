"""Advantages and returns over time: GAE over steps and over tokens, and reward-to-go.

One recursion serves them all: time runs backward over ``[T, N]``, an end of an episode cuts it, and
a masked row is stepped over as if it were not there. Termination never bootstraps; truncation does,
from the value of the final observation. These functions run once per iteration, carry no gradient,
and refuse numbers that are not finite. An advantage that compares trajectories with one another
belongs in ``groups.py``; another estimator over time belongs here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlinf_core.rl.masks import (
    accumulation_dtype,
    require,
    require_bool,
    require_finite,
    require_same_shape,
    where_valid,
)


class Advantages(NamedTuple):
    """Advantages, and the returns that a critic is trained on, of one shape; 0 where masked."""

    advantages: Tensor
    returns: Tensor


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_values: Tensor,
    mask: Tensor | None = None,
    *,
    gamma: float,
    lam: float,
) -> Advantages:
    """Generalised advantage estimation over the steps of N environments.

    ``delta[t] = rewards[t] + gamma * next[t] - values[t]`` and ``adv[t] = delta[t] + gamma * lam *
    adv[t+1]``, where ``next[t]`` is 0 at a termination, ``final_values[t]`` at a truncation and
    else the next valid value, and the second term is dropped at either. Where both flags are set,
    termination wins. Schulman et al. 2015, arXiv 1506.02438, Eq. 11 and 16.

    The auto-reset mode of the simulator shows in the arguments:

    * same step: ``values[t+1]`` after an end is of the next episode's first observation and
      ``final_values[t]`` of the old one's last;
    * next step: the row after an end is the reset row, which the mask leaves out; its observation
      is the final one, so ``final_values = values[1:]``;
    * none: the mask leaves out all rows after an environment's end.

    Args:
        rewards: ``[T, N]``.
        values: ``[T+1, N]``, in units of return; the last row is of the observation behind the
            last step.
        terminated: bool ``[T, N]``.
        truncated: bool ``[T, N]``.
        final_values: ``[T, N]``, read only where an environment was truncated.
        mask: bool ``[T, N]``, the valid rows; None if all are.
        gamma: the discount per row, in [0, 1].
        lam: the GAE parameter, in [0, 1].

    Returns:
        advantages and returns, both ``[T, N]``, at least in float32, 0 at masked rows.

    Raises:
        RLInputError: shapes that do not fit, ``gamma`` or ``lam`` out of range, or a number at a
            valid row that is not finite.
    """
    for name, rate in (("gamma", gamma), ("lam", lam)):
        require(0.0 <= rate <= 1.0, f"{name} is {rate}, but must lie in [0, 1]")
    mask = torch.ones_like(terminated) if mask is None else mask
    require(rewards.ndim == 2, f"rewards have shape {list(rewards.shape)}, but must be [T, N]")
    require_bool(terminated=terminated, truncated=truncated)
    require_same_shape(
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        final_values=final_values,
        mask=mask,
    )
    steps = rewards.shape[0]
    require(
        values.shape == (steps + 1, *rewards.shape[1:]),
        f"values have shape {list(values.shape)}, but rewards {list(rewards.shape)} need one row "
        "more than they have: the value of the observation behind the last step",
    )
    require_finite("rewards", rewards, mask)
    require_finite("values", values[:-1], mask)
    require_finite("final_values", final_values, mask & truncated & ~terminated)
    ended = terminated | truncated  # [T, N]
    unfinished = (last_valid(mask.T).T & ~ended).any(dim=0)  # [N]: bootstraps from the last row
    require_finite("the last row of values", values[-1], unfinished)

    values = values.to(torch.promote_types(rewards.dtype, accumulation_dtype(values)))
    bootstrap = torch.where(truncated, final_values.to(values.dtype), _next_valid(values, mask))
    bootstrap = torch.where(terminated, 0.0, bootstrap)
    at_once = torch.where(mask, rewards + gamma * bootstrap, 0.0)  # [T, N]: lambda's share is added
    known = torch.where(mask, values[:-1], 0.0)
    decay = torch.ones_like(known).masked_fill_(mask, gamma * lam)  # a masked row hands on
    returns = _backward(at_once, decay, known, ended & mask)
    advantages = torch.where(mask, returns - known, 0.0)
    return Advantages(advantages, torch.where(mask, returns, 0.0))


def _next_valid(values: Tensor, mask: Tensor) -> Tensor:
    """Return the value of the next valid row, or else of the last row: ``[T, N]``."""
    steps = len(mask)
    rows = torch.arange(1, steps + 1, device=values.device).unsqueeze(1)  # [T, 1]
    here = torch.where(mask, rows - 1, steps)  # [T, N]: own row where valid
    from_here = here.flip(0).cummin(dim=0).values.flip(0)
    following = torch.cat([from_here[1:], torch.full_like(here[:1], steps)])
    return values.gather(0, following)


def _backward(at_once: Tensor, decay: Tensor, values: Tensor, ended: Tensor) -> Tensor:
    """Return the returns of :func:`gae`: the one part that goes step by step, all ``[T, N]``.

    On the host in NumPy: a step is a few operations on N numbers, and a call of PyTorch costs
    several times what they cost (on a device, a launch each).
    """
    targets, decays, known = (x.cpu().contiguous().numpy() for x in (at_once, decay, values))
    targets = targets.copy()
    ends, any_ended = ended.cpu().numpy(), ended.any(dim=1).tolist()
    ahead = np.zeros(targets.shape[1], targets.dtype)  # [N]: the advantage of the row behind
    for target, share, value, end, stops in zip(
        targets[::-1], decays[::-1], known[::-1], ends[::-1], any_ended[::-1], strict=True
    ):
        if stops:
            ahead[end] = 0.0
        np.multiply(ahead, share, ahead)
        # The return first and the advantage from it: a value of 1e6 must not cost its digits.
        np.add(target, ahead, target)
        np.subtract(target, value, ahead)
    return torch.from_numpy(targets).to(at_once.device)


@torch.no_grad()
def token_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> Advantages:
    """GAE over the tokens of B sequences: each is one episode over its valid tokens.

    Nothing is bootstrapped behind the last valid token. Tokens that are masked in between (those
    that a tool wrote, say) are stepped over. Formula as in :func:`gae`.

    Args:
        rewards: ``[B, L]``; from a score per sequence, see :func:`token_rewards`.
        values: ``[B, L]``, in units of return.
        mask: bool ``[B, L]``, the valid tokens.
        gamma: the discount per token, in [0, 1].
        lam: the GAE parameter, in [0, 1].

    Returns:
        advantages and returns, both ``[B, L]``, 0 at masked tokens.

    Raises:
        RLInputError: shapes differ, ``gamma`` or ``lam`` out of range, or a number at a valid
            token that is not finite.
    """
    require(rewards.ndim == 2, f"rewards have shape {list(rewards.shape)}, but must be [B, L]")
    require_same_shape(rewards=rewards, values=values, mask=mask)
    behind = values.new_zeros(values.shape[0], 1)  # [B, 1]: there is nothing to bootstrap from
    never = torch.zeros_like(mask).T
    over_time = gae(
        rewards.T,
        torch.cat([values, behind], dim=1).T,  # [L+1, B]
        terminated=never,
        truncated=never,
        final_values=torch.zeros_like(values).T,
        mask=mask.T,
        gamma=gamma,
        lam=lam,
    )
    return Advantages(over_time.advantages.T, over_time.returns.T)


def critic_free_returns(
    rewards: Tensor, ended: Tensor, mask: Tensor | None = None, *, gamma: float = 1.0
) -> Tensor:
    """Advantages without a critic: the (discounted) sum of rewards to the end of the episode.

    The reward-to-go of REINFORCE (Williams 1992), which is GAE with all values 0 and ``lam = 1``.

    Args:
        rewards: ``[T, N]``.
        ended: bool ``[T, N]``, terminated or truncated; there is nothing to bootstrap from.
        mask: bool ``[T, N]``, the valid rows; None if all are.
        gamma: the discount per row, in [0, 1].

    Returns:
        ``[T, N]``, 0 at masked rows.

    Raises:
        RLInputError: shapes differ, ``gamma`` is out of range, or a valid reward is not finite.
    """
    values = rewards.new_zeros(rewards.shape[0] + 1, *rewards.shape[1:])  # [T+1, N]
    never = torch.zeros_like(ended)
    return gae(rewards, values, ended, never, values[1:], mask, gamma=gamma, lam=1.0).returns


def token_rewards(
    scores: Tensor, mask: Tensor, *, kl: Tensor | None = None, beta: float = 0.0
) -> Tensor:
    """Place each sequence's score at its last valid token, less ``beta * kl`` at every valid one.

    Args:
        scores: ``[B]``; that of a sequence without a valid token is not read.
        mask: bool ``[B, L]``, the valid tokens.
        kl: ``[B, L]``, an estimate per token in nats, such as :func:`~rlinf_core.rl.kl.k1`.
        beta: the weight of ``kl``, reward per nat.

    Returns:
        ``[B, L]``, 0 at masked tokens.

    Raises:
        RLInputError: shapes that do not fit, a score or ``kl`` that counts and is not finite, or
            ``beta`` without ``kl``.
    """
    require(kl is not None or beta == 0.0, f"beta is {beta}, but no kl is given to weigh")
    require_finite("scores", scores, _has_valid(scores, mask))
    last = last_valid(mask)
    rewards = torch.where(last, scores.unsqueeze(1), 0.0)
    if kl is not None:
        require_finite("kl", kl, mask)
        rewards = rewards - beta * where_valid(kl, mask)
    return rewards


def last_valid(mask: Tensor) -> Tensor:
    """Return where the last valid token of each sequence stands: bool ``[B, L]``, one per row.

    It is found, not counted from the length: valid tokens may begin anywhere and have gaps.
    """
    behind = mask.flip(-1).cumsum(-1).flip(-1)  # [B, L]: valid tokens from here on
    return mask & (behind == 1)


def _has_valid(scores: Tensor, mask: Tensor) -> Tensor:
    require(
        mask.ndim == 2 and scores.shape == mask.shape[:1],
        f"scores have shape {list(scores.shape)}, but a mask of {list(mask.shape)} needs one score "
        "per row of a [B, L] mask",
    )
    return mask.any(dim=1)
