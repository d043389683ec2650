"""From one loss per token to one number: the aggregations, and the sums of metrics.

An aggregation returns a :class:`~rlinf_core.rl.masks.Mean`, that is a sum and a count. Divided by
the count of the *whole* minibatch (over micro-batches and ranks), the result of a micro-batch is
already its share of the whole, and shares simply add. The count depends on the mask alone:
``aggregate(mask.float(), mask).n``, summed over micro-batches and ranks, is the count of the whole.
A new aggregation is a function ``(values, mask) -> Mean`` here; losses take it as ``aggregate=``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from rlinf_core.rl.masks import (
    Mean,
    accumulation_dtype,
    expand_trailing,
    masked_mean,
    masked_sum,
    require,
)

Aggregate = Callable[[Tensor, Tensor], Mean]
"""``(values, mask) -> Mean``: how the values of valid steps become one mean."""

Metrics = dict[str, tuple[Tensor, Tensor]]
"""Name to ``(sum, count)``: added up over micro-batches and ranks, divided at the very end."""


def token_mean(values: Tensor, mask: Tensor) -> Mean:
    """Mean over all valid tokens: every token weighs the same, long sequences weigh more.

    The token-level loss of DAPO (arXiv 2503.14476, Sec. 3.3). Its count is the number of valid
    tokens.

    Args:
        values: any shape.
        mask: bool, the same shape.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    return masked_mean(values, mask)


def seq_mean_token_sum(values: Tensor, mask: Tensor) -> Mean:
    """Mean over sequences of the sum over their valid tokens (Dr. GRPO, arXiv 2503.20783).

    Its count is the number of sequences with a valid token; an empty one contributes nothing.

    Args:
        values: ``[B, L]``.
        mask: bool, ``[B, L]``.

    Raises:
        RLInputError: not two-dimensional, shapes differ, or the mask is not boolean.
    """
    _require_rows(values)
    return _over_sequences(masked_sum(values, mask, dim=1), mask)


def seq_mean_token_mean(values: Tensor, mask: Tensor) -> Mean:
    """Mean over sequences of the mean over their valid tokens (GRPO, arXiv 2402.03300, Eq. 3).

    Its count is the number of sequences with a valid token; an empty one contributes nothing.

    Args:
        values: ``[B, L]``.
        mask: bool, ``[B, L]``.

    Raises:
        RLInputError: not two-dimensional, shapes differ, or the mask is not boolean.
    """
    _require_rows(values)
    length = mask.sum(dim=1).clamp(min=1)  # [B]
    return _over_sequences(masked_sum(values, mask, dim=1) / length, mask)


def episode_weighted_mean(
    values: Tensor, mask: Tensor, *, steps: Tensor, max_episode_steps: int
) -> Mean:
    """Weigh each step by ``max_episode_steps / steps``, so that every episode weighs the same.

    Its count is the number of *all* slots, valid or not (so the global count is the number of
    slots of the minibatch). Losses take it as
    ``aggregate=functools.partial(episode_weighted_mean, steps=..., max_episode_steps=...)``.
    From RLinf-VLA, arXiv 2510.06710 (trajectory-length normalisation).

    Args:
        values: ``[B, ...]``.
        mask: bool, the same shape.
        steps: ``[B]``, the number of valid steps of the episode that each row belongs to.
        max_episode_steps: the length of the longest episode, in steps.

    Raises:
        RLInputError: shapes differ, or ``max_episode_steps`` is not positive.
    """
    require(
        max_episode_steps > 0, f"max_episode_steps is {max_episode_steps}, but must be positive"
    )
    share = steps.clamp(min=1).to(values.dtype) / max_episode_steps  # [B]
    weighted = values / expand_trailing(share, values)
    slots = torch.full((), mask.numel(), dtype=accumulation_dtype(values), device=values.device)
    return Mean(masked_sum(weighted, mask), slots)


def merge_metrics(parts: Iterable[Metrics]) -> Metrics:
    """Add up the metrics of micro-batches: sums to sums, counts to counts."""
    merged: Metrics = {}
    for part in parts:
        for name, (total, n) in part.items():
            before = merged.get(name, (0.0, 0.0))
            merged[name] = Mean(before[0] + total, before[1] + n)
    return merged


def mean_metrics(metrics: Metrics) -> dict[str, Tensor]:
    """Divide each sum by its count; a metric without any valid step is 0."""
    return {name: Mean(*pair).over() for name, pair in metrics.items()}


def _require_rows(values: Tensor) -> None:
    require(
        values.ndim == 2,
        f"values have shape {list(values.shape)}, but an aggregation over sequences needs [B, L]",
    )


def _over_sequences(per_sequence: Tensor, mask: Tensor) -> Mean:
    """Mean over the sequences that have a valid token; ``per_sequence`` is ``[B]``."""
    return masked_mean(per_sequence, mask.any(dim=1))
