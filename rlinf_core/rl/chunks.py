"""Action chunks: which steps are valid, what a chunk earns, which log-prob it has.

A policy that acts in chunks decides on C steps at once. Arrays are time-major ``[K, N, C]``: K
chunks, N environments, C steps of a chunk. Steps that come after an episode's end are not executed:
they earn nothing, set no flag and train nothing, whatever their slots hold. Anything that turns
steps into chunks, or chunks into steps, belongs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlinf_core.rl.masks import (
    masked_sum,
    require,
    require_bool,
    require_same_shape,
    where_valid,
)

Level = Literal["token", "action", "chunk"]
"""What one log-prob stands for: one token, one action of a chunk, or the whole chunk."""


def valid_until_done(dones: Tensor) -> Tensor:
    """Return which steps are valid without auto-reset: up to and including the first that is done.

    An environment that has ended stays ended, also in later chunks and if it is done again.

    Args:
        dones: bool ``[K, N, C]``, terminated or truncated.

    Returns:
        bool ``[K, N, C]``. ``.any(-1)`` are the valid chunks ``[K, N]``, ``.sum((0, 2))`` the
        valid steps of each environment ``[N]``.

    Raises:
        RLInputError: not three-dimensional, or not boolean.
    """
    require_bool(dones=dones)
    steps = flatten_chunks(dones)  # [K*C, N]
    return unflatten_steps(_none_before(steps, dim=0), dones.shape[-1])


def valid_within_chunk(dones: Tensor) -> Tensor:
    """Return which steps are valid with auto-reset at chunk ends: each chunk begins anew.

    Valid are the steps up to and including the first of the chunk that is done.

    Args:
        dones: bool ``[K, N, C]``, terminated or truncated.

    Returns:
        bool ``[K, N, C]``.

    Raises:
        RLInputError: not three-dimensional, or not boolean.
    """
    require_bool(dones=dones)
    _require_chunks(dones)
    return _none_before(dones, dim=-1)


def chunk_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Return what each chunk earned: the sum over its valid steps.

    Args:
        rewards: ``[K, N, C]``.
        mask: bool ``[K, N, C]``, the valid steps.

    Returns:
        ``[K, N]``.

    Raises:
        RLInputError: not three-dimensional, shapes differ, or the mask is not boolean.
    """
    _require_chunks(rewards)
    return masked_sum(rewards, mask, dim=-1)


def chunk_flags(flags: Tensor, mask: Tensor) -> Tensor:
    """Return for each chunk whether a flag is set at one of its valid steps.

    Args:
        flags: bool ``[K, N, C]``, such as terminated or truncated.
        mask: bool ``[K, N, C]``, the valid steps; a flag behind the end is dropped.

    Returns:
        bool ``[K, N]``.

    Raises:
        RLInputError: not three-dimensional, shapes differ, or not boolean.
    """
    _require_chunks(flags)
    require_bool(flags=flags)
    require_same_shape(flags=flags, mask=mask)
    return (flags & mask).any(dim=-1)


def trajectory_scores(rewards: Tensor, mask: Tensor) -> Tensor:
    """Return the score of each trajectory: the sum of rewards over all of its valid steps.

    Args:
        rewards: ``[K, N, C]``.
        mask: bool ``[K, N, C]``, the valid steps.

    Returns:
        ``[N]``.

    Raises:
        RLInputError: not three-dimensional, shapes differ, or the mask is not boolean.
    """
    _require_chunks(rewards)
    return masked_sum(rewards, mask, dim=(0, 2))


def flatten_chunks(x: Tensor) -> Tensor:
    """Read chunks ``[K, N, C]`` as single steps ``[K*C, N]``: step ``k*C + c``.

    Raises:
        RLInputError: not three-dimensional.
    """
    _require_chunks(x)
    return x.transpose(1, 2).reshape(-1, x.shape[1])


def unflatten_steps(x: Tensor, chunk_length: int) -> Tensor:
    """Read single steps ``[K*C, N]`` as chunks ``[K, N, C]``, the reverse of `flatten_chunks`.

    Raises:
        RLInputError: not two-dimensional, or the steps are not whole chunks.
    """
    require(
        x.ndim == 2 and x.shape[0] % chunk_length == 0,
        f"shape {list(x.shape)} is not [K*C, N] with chunks of C = {chunk_length} steps",
    )
    return x.reshape(-1, chunk_length, x.shape[1]).transpose(1, 2)


def aggregate_logprob(logprobs: Tensor, level: Level, mask: Tensor | None = None) -> Tensor:
    """Return the log-prob of what counts as one decision: a token, an action or a whole chunk.

    Token level keeps the log-probs, action level sums those of an action, chunk level those of the
    chunk (RLinf-VLA, arXiv 2510.06710).

    Args:
        logprobs: ``[B, C, A]``: C actions of A tokens (or dimensions) each, in nats.
        level: ``"token"``, ``"action"`` or ``"chunk"``.
        mask: bool ``[B, C]``, the actions that were executed; None if all were. The others count
            as log-prob 0, and their gradient is 0: an action behind the end never trains.

    Returns:
        ``[B, C, A]``, ``[B, C]`` or ``[B]``.

    Raises:
        RLInputError: another shape or another level.
    """
    require(
        logprobs.ndim == 3, f"logprobs have shape {list(logprobs.shape)}, but must be [B, C, A]"
    )
    require(level in _LEVELS, f"log-prob level {level!r} is unknown; there are {list(_LEVELS)}")
    if mask is not None:
        require(
            mask.shape == logprobs.shape[:2],
            f"mask has shape {list(mask.shape)}, but logprobs {list(logprobs.shape)} need "
            f"{list(logprobs.shape[:2])}: one flag per action",
        )
        logprobs = where_valid(logprobs, mask.unsqueeze(-1).expand_as(logprobs))
    return _LEVELS[level](logprobs)


def sum_to_level(values: Tensor, level: Level, mask: Tensor) -> Tensor:
    """Return log-probs or entropies, as fine as a model states them, summed up to ``level``.

    Args:
        values: ``[B, C, A]``, ``[B, C]`` or ``[B]``, in nats.
        level: what one probability ratio is to be of.
        mask: bool ``[B, C]``, the actions that were executed.

    Returns:
        ``[B, C, A]`` at level ``"token"``, ``[B, C]`` at ``"action"``, ``[B]`` at ``"chunk"``.

    Raises:
        RLInputError: the values are coarser than ``level``.
    """
    stated = ("chunk", "action", "token")[values.ndim - 1]
    order = list(_LEVELS)
    require(level in order, f"log-prob level {level!r} is unknown; there are {order}")
    require(
        order.index(stated) <= order.index(level),
        f"the model states log-probs per {stated}, shape {list(values.shape)}, but logprob_level "
        f"is {level!r}, which is finer; set algorithm.logprob_level to {stated!r}",
    )
    if values.ndim == 1:
        return values
    return aggregate_logprob(values if values.ndim == 3 else values.unsqueeze(2), level, mask)


_LEVELS: dict[str, Callable[[Tensor], Tensor]] = {
    "token": lambda logprobs: logprobs,
    "action": lambda logprobs: logprobs.sum(dim=-1),
    "chunk": lambda logprobs: logprobs.sum(dim=(-2, -1)),
}


def _none_before(dones: Tensor, dim: int) -> Tensor:
    """Return where nothing before, along ``dim``, is done."""
    return torch.cumsum(dones, dim=dim) - dones.to(torch.int64) == 0


def _require_chunks(x: Tensor) -> None:
    require(x.ndim == 3, f"shape {list(x.shape)} is not [K, N, C]: chunks, environments, steps")
