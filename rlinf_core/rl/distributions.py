"""Log-probs and entropies of the two action distributions: categorical and Gaussian.

Everything is in nats, and safe where a probability is 0: a logit of minus infinity is a token that
cannot be drawn, a standard deviation of 0 a dimension without noise. Another distribution belongs
here, as a pair of functions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlinf_core.rl.masks import accumulation_dtype, require, require_same_shape


def categorical_logprobs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Return ``log softmax(logits / temperature)[token]``.

    Args:
        logits: ``[..., V]``; minus infinity forbids a token.
        tokens: int64 ``[...]``, the tokens that were drawn.
        temperature: positive; the one that was sampled with.
        mask: bool ``[...]``: where false, the logits are not read and have no gradient.

    Returns:
        ``[...]``, in nats, at least in float32.

    Raises:
        RLInputError: shapes that do not fit, or a temperature that is not positive.
    """
    require(
        tokens.shape == logits.shape[:-1],
        f"tokens have shape {list(tokens.shape)}, but logits {list(logits.shape)} need "
        f"{list(logits.shape[:-1])}",
    )
    log_probs = _log_softmax(logits, temperature, mask)
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def categorical_entropy(
    logits: Tensor, *, temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Return ``-sum p log p`` of ``softmax(logits / temperature)``, with ``0 log 0 = 0``.

    Args:
        logits: ``[..., V]``; minus infinity forbids a token.
        temperature: positive; the one that was sampled with.
        mask: bool ``[...]``: where false, the logits are not read and have no gradient.

    Returns:
        ``[...]``, in nats, at least in float32.

    Raises:
        RLInputError: shapes that do not fit, or a temperature that is not positive.
    """
    log_probs = _log_softmax(logits, temperature, mask)
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * finite).sum(dim=-1)


def gaussian_logprobs(sample: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the log-density of each dimension of a diagonal Gaussian; 0 where ``std`` is 0.

    ``-log(std) - log(2 pi) / 2 - ((sample - mean) / std)^2 / 2``.

    Args:
        sample: any shape.
        mean: the same shape.
        std: the same shape, in the units of ``sample``.

    Returns:
        the same shape, in nats.

    Raises:
        RLInputError: shapes differ.
    """
    require_same_shape(sample=sample, mean=mean, std=std)
    noisy = std != 0
    safe = torch.where(noisy, std, 1.0)
    z = (sample - mean) / safe
    density = -safe.log() - 0.5 * math.log(2 * math.pi) - 0.5 * z.square()
    return torch.where(noisy, density, 0.0)


def gaussian_entropy(std: Tensor) -> Tensor:
    """Return the entropy of each dimension, ``log(2 pi e std^2) / 2``; a ``std`` of 0 counts as 1.

    Args:
        std: any shape.

    Returns:
        the same shape, in nats.
    """
    safe = torch.where(std != 0, std, 1.0)
    return 0.5 * math.log(2 * math.pi * math.e) + safe.log()


def _log_softmax(logits: Tensor, temperature: float, mask: Tensor | None) -> Tensor:
    require(
        temperature > 0,
        f"temperature is {temperature}, but must be positive: at 0 a policy takes the likeliest "
        "token and has no log-probs to train on",
    )
    if mask is not None:
        require_same_shape(mask=mask, logits=logits[..., 0])
        logits = torch.where(mask.unsqueeze(-1), logits, 0.0)
    return torch.log_softmax(logits.to(accumulation_dtype(logits)) / temperature, dim=-1)
