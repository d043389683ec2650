"""Groups of trajectories that share a starting point: GRPO advantages and group filters.

A group is ``group_size`` consecutive entries. It is never split and never padded: what is not a
whole number of groups is refused. Groups do not look at one another, so nothing here needs the
other ranks. An estimator that compares the members of a group belongs here; one that looks along
time belongs in ``advantages.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlinf_core.rl.masks import (
    Mean,
    accumulation_dtype,
    require,
    require_finite,
    require_same_shape,
    where_valid,
)

GRPO_EPSILON = 1e-6
"""Added to the standard deviation of a group."""


class GroupAdvantages(NamedTuple):
    """What GRPO makes of a batch of rewards.

    ``advantages`` is ``[B]``. ``equal_groups.total`` is the number of groups whose rewards are all
    equal, which teach nothing, and ``equal_groups.n`` the number of groups: a metric.
    """

    advantages: Tensor
    equal_groups: Mean


class GroupFilter(NamedTuple):
    """Which groups are kept: mean rewards ``[G]``, ``keep`` ``[G]`` and ``keep_rows`` ``[B]``."""

    mean: Tensor
    keep: Tensor
    keep_rows: Tensor


@torch.no_grad()
def grpo_advantages(
    rewards: Tensor,
    group_size: int,
    mask: Tensor | None = None,
    *,
    divide_by_std: bool = True,
) -> GroupAdvantages:
    """Group-relative advantages: ``(r - mean) / (std + 1e-6)`` within each group.

    The divisor of the standard deviation is ``group_size - 1``. A group whose rewards are all equal
    has advantage exactly 0 and is counted. DeepSeekMath, arXiv 2402.03300, Sec. 4.1.2 (outcome
    supervision); without the division, Dr. GRPO, arXiv 2503.20783.

    Args:
        rewards: ``[B]``, one per trajectory, group by group.
        group_size: at least 2.
        mask: bool ``[B]``, the trajectories that have a valid step; None if all do. The others take
            no part in their group's statistics and get 0.
        divide_by_std: False leaves the standard deviation out.

    Raises:
        RLInputError: ``group_size`` below 2, rewards that are not whole groups, or a valid reward
            that is not finite.
    """
    grouped, valid = _groups(rewards, group_size, mask)  # [G, S]
    centred = _centred(grouped, valid)
    highest = torch.where(valid, grouped, -torch.inf).amax(dim=1)
    lowest = torch.where(valid, grouped, torch.inf).amin(dim=1)
    counted = valid.any(dim=1)  # [G]
    equal = highest == lowest  # [G]: never where nobody is valid
    if divide_by_std:
        divisor = (valid.sum(dim=1) - 1).clamp(min=1)
        std = (centred.square().sum(dim=1) / divisor).sqrt()
        centred = centred / (std + GRPO_EPSILON).unsqueeze(1)
    advantages = torch.where(equal.unsqueeze(1), 0.0, centred).reshape(-1)
    dtype = accumulation_dtype(rewards)
    return GroupAdvantages(
        advantages.to(dtype), Mean(equal.sum().to(dtype), counted.sum().to(dtype))
    )


@torch.no_grad()
def center_on_group(rewards: Tensor, group_size: int, mask: Tensor | None = None) -> Tensor:
    """Return each reward less the mean of its group, ``[B]``; ``rewards`` stays as it is.

    Arguments and errors are those of :func:`grpo_advantages`.
    """
    grouped, valid = _groups(rewards, group_size, mask)
    return _centred(grouped, valid).reshape(-1).to(accumulation_dtype(rewards))


@torch.no_grad()
def filter_groups(
    rewards: Tensor,
    group_size: int,
    mask: Tensor | None = None,
    *,
    lower: float,
    upper: float,
) -> GroupFilter:
    """Keep the groups whose mean reward lies between ``lower`` and ``upper``, both included.

    All entries of a group share its fate. Where no group is left there is no valid data: a loss
    under the mask is 0 with zero gradient. DAPO's dynamic sampling, arXiv 2503.14476, Sec. 3.2.

    Args:
        rewards: ``[B]``, one per trajectory, group by group.
        group_size: at least 2.
        mask: bool ``[B]``, the trajectories that have a valid step; None if all do. A group without
            any is not kept.
        lower: the lowest mean that is kept, in units of reward.
        upper: the highest mean that is kept.

    Raises:
        RLInputError: as :func:`grpo_advantages`, or ``lower`` above ``upper``.
    """
    require(lower <= upper, f"lower is {lower} and upper is {upper}: no group could be kept")
    grouped, valid = _groups(rewards, group_size, mask)
    # In the dtype of the rewards, where a bound of 0.1 and a mean of 0.1 are the same number.
    mean = _mean(grouped, valid).to(accumulation_dtype(rewards))  # [G]
    keep = valid.any(dim=1) & (mean >= lower) & (mean <= upper)
    return GroupFilter(mean, keep, keep.repeat_interleave(group_size))


def trajectory_to_steps(x: Tensor, mask: Tensor, *, dim: int) -> Tensor:
    """Give each trajectory's number to all of its valid steps, and 0 elsewhere.

    Args:
        x: ``[N]``, one number per trajectory.
        mask: bool, the valid steps: ``[N, L]`` with ``dim=0``, ``[K, N, C]`` with ``dim=1``.
        dim: which dimension of ``mask`` counts the trajectories.

    Returns:
        the shape of ``mask``.

    Raises:
        RLInputError: ``x`` is not ``[N]`` with N the size of that dimension.
    """
    require(
        x.shape == mask.shape[dim : dim + 1],
        f"shape {list(x.shape)} has not one number for each of the {mask.shape[dim]} trajectories "
        f"in dimension {dim} of {list(mask.shape)}",
    )
    shape = [1] * mask.ndim
    shape[dim] = x.shape[0]
    return where_valid(x.reshape(shape).expand(mask.shape), mask)


def _groups(rewards: Tensor, group_size: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return rewards, float64 and 0 where masked, and mask, both ``[G, S]``; refuse bad ones."""
    require(
        group_size >= 2,
        f"group_size is {group_size}, but a group needs at least 2 members: the only member of a "
        "group is its own baseline and learns nothing",
    )
    require(
        rewards.ndim == 1 and rewards.shape[0] % group_size == 0,
        f"rewards have shape {list(rewards.shape)}, which is not one number per trajectory in "
        f"whole groups of group_size {group_size}: groups are never split or padded",
    )
    mask = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask
    require_same_shape(rewards=rewards, mask=mask)
    require_finite("rewards", rewards, mask)
    wide = torch.where(mask, rewards.double(), 0.0)
    return wide.reshape(-1, group_size), mask.reshape(-1, group_size)


def _mean(grouped: Tensor, valid: Tensor) -> Tensor:
    """Mean of the valid members of each group, ``[G]``."""
    return grouped.sum(dim=1) / valid.sum(dim=1).clamp(min=1)


def _centred(grouped: Tensor, valid: Tensor) -> Tensor:
    """Distance of each valid member from the mean of its group, ``[G, S]``, 0 for the others."""
    return torch.where(valid, grouped - _mean(grouped, valid).unsqueeze(1), 0.0)
