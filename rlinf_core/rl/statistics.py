"""Statistics over valid steps only, and over all ranks: moments, normalisation, explained variance.

Every function takes a ``reduce`` that sums a tensor over the ranks that share the batch; alone, it
is :func:`local`. Sums are accumulated in float64 and in two passes (first the mean, then the
squared distances from it), so that large or constant numbers give 0 and not rounding noise divided
by itself. NaN at a valid position is not hidden: the statistic is NaN. Add a statistic here if it
is a function of the global moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rlinf_core.rl.masks import accumulation_dtype, masked_sum, require, where_valid

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor, element by element, over the ranks; every rank gets the sum."""

NORMALIZE_EPSILON = 1e-5
"""Added to the standard deviation by :func:`standardize`."""

_ROUNDING = 16 * torch.finfo(torch.float64).eps
"""A standard deviation below this share of the mean is rounding, and counts as none."""


def local(sums: Tensor) -> Tensor:
    """Return ``sums`` as they are: the :data:`Reduce` of a batch that one rank holds alone."""
    return sums


class Moments(NamedTuple):
    """Global count, mean and sum of squared distances from the mean: float64 scalars."""

    n: Tensor
    mean: Tensor
    m2: Tensor

    def variance(self, *, ddof: int) -> Tensor:
        """Return ``m2 / (n - ddof)``; 0 where that is but rounding, as with one value or none."""
        variance = self.m2 / (self.n - ddof).clamp(min=1)
        return torch.where(variance <= (_ROUNDING * self.mean).square(), 0.0, variance)


def masked_sums(x: Tensor, mask: Tensor) -> Tensor:
    """Return one part's ``[count, sum, sum of squares]`` over valid positions, float64 ``[3]``.

    The sums of parts (ranks, micro-batches, streamed pieces) add up to the sums of the whole, which
    :func:`moments_from_sums` reads. Where the whole is at hand, :func:`masked_moments` loses fewer
    digits.
    """
    wide = where_valid(x, mask).double()
    return torch.stack([mask.sum().double(), wide.sum(), wide.square().sum()])  # [3]


def moments_from_sums(sums: Tensor) -> Moments:
    """Return the moments of a whole from the added-up ``[count, sum, sum of squares]`` ``[3]``.

    Raises:
        RLInputError: ``sums`` is not of shape ``[3]``.
    """
    require(sums.shape == (3,), f"the sums have shape {list(sums.shape)}, but must have [3]")
    n, total, squares = sums.double().unbind()
    mean = total / n.clamp(min=1)
    return Moments(n, mean, squares - total * mean)


def masked_moments(x: Tensor, mask: Tensor, reduce: Reduce = local) -> Moments:
    """Return count, mean and squared distances over the valid positions of all ranks.

    Calls ``reduce`` twice, on every rank, also on one that has no valid position.

    Args:
        x: any shape.
        mask: bool, the same shape.
        reduce: sums over ranks.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    wide = where_valid(x, mask).double()
    n, total = reduce(torch.stack([mask.sum().double(), wide.sum()])).unbind()
    mean = total / n.clamp(min=1)
    m2 = reduce(masked_sum((wide - mean).square(), mask).reshape(1)).squeeze(0)
    return Moments(n, mean, m2)


def standardize(x: Tensor, mask: Tensor, moments: Moments) -> Tensor:
    """Return ``(x - mean) / (std + 1e-5)`` with the divisor ``n - 1``; 0 at masked positions.

    Where the values do not differ, or there is but one, the result is 0.

    Args:
        x: any shape.
        mask: bool, the same shape.
        moments: of the whole that ``x`` is a part of.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    variance = moments.variance(ddof=1)
    centred = where_valid(x, mask).double() - moments.mean
    scaled = centred / (variance.sqrt() + NORMALIZE_EPSILON)
    return torch.where(mask & (variance != 0), scaled, 0.0).to(accumulation_dtype(x))


def normalize(x: Tensor, mask: Tensor, reduce: Reduce = local) -> Tensor:
    """Standardise over the valid positions of all ranks: :func:`standardize` by global moments.

    Advantage normalisation as PPO implementations have it (Engstrom et al. 2020, arXiv 2005.12729),
    but over the whole batch and never over one rank's or one micro-batch's part of it.

    Args:
        x: any shape.
        mask: bool, the same shape.
        reduce: sums over ranks.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    return standardize(x, mask, masked_moments(x, mask, reduce))


def explained_variance(
    values: Tensor, returns: Tensor, mask: Tensor, reduce: Reduce = local
) -> Tensor:
    """Return ``1 - var(returns - values) / var(returns)`` over the valid positions of all ranks.

    1 is a perfect critic, 0 one as good as a constant. The divisor is ``n``. NaN where the returns
    do not vary, or fewer than two positions are valid. A float64 scalar.

    Args:
        values: what the critic predicted, any shape, in units of return.
        returns: what it should have predicted, the same shape.
        mask: bool, the same shape.
        reduce: sums over ranks.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    returns = where_valid(returns, mask).double()
    residual = returns - where_valid(values, mask).double()
    spread = masked_moments(returns, mask, reduce).variance(ddof=0)
    unexplained = masked_moments(residual, mask, reduce).variance(ddof=0)
    return torch.where(spread > 0, 1 - unexplained / spread, torch.nan)
