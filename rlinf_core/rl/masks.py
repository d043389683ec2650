"""Masked sums and means, and the checks that every function of :mod:`rlinf_core.rl` starts with.

A mask is a boolean tensor of the same shape as what it masks, true where a step is valid. Masking
is done with :func:`torch.where` and never by multiplication, because ``0 * nan`` is ``nan``; what
stands in a masked slot can change neither a value nor a gradient.

To be safe in the gradient too, a formula that is computed element by element takes its inputs
through :func:`where_valid` first (so that nothing infinite is ever computed) and its results
through :func:`masked_sum` or :func:`masked_mean` afterwards. Add a helper here when two other files
need the same one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rlinf_core.errors import RLInputError

Count = Tensor | float | None


class Mean(NamedTuple):
    """A mean kept as its sum and its count, so that parts of a batch can be added up exactly.

    ``total`` and ``n`` are scalars of the same dtype. As a plain tuple it is the ``(sum, count)``
    pair of a metric.
    """

    total: Tensor
    n: Tensor

    def over(self, count: Count = None) -> Tensor:
        """Return ``total / count``: this part's share of a mean over ``count`` elements.

        ``count`` is the number of elements of the whole (all micro-batches and all ranks); None
        means that this part is the whole. Where the count is 0, so is the result.
        """
        divisor = self.n if count is None else count
        if isinstance(divisor, Tensor):
            return self.total / divisor.to(self.total.dtype).clamp(min=1)
        return self.total / max(divisor, 1)

    def detach(self) -> Mean:
        """Return the same numbers without their graph, for a metric."""
        return Mean(self.total.detach(), self.n.detach())


def require(condition: bool, message: str) -> None:
    """Raise :class:`~rlinf_core.errors.RLInputError` with ``message`` unless ``condition``."""
    if not condition:
        raise RLInputError(message)


def require_same_shape(*, mask: Tensor | None = None, **tensors: Tensor) -> None:
    """Refuse tensors that are not all of one shape; nothing is ever broadcast.

    Raises:
        RLInputError: two shapes differ, be it only ``[B]`` against ``[B, 1]``, or ``mask`` is not
            boolean.
    """
    if mask is not None:
        require_bool(mask=mask)
        tensors["mask"] = mask
    (first, reference), *others = tensors.items()
    for name, tensor in others:
        require(
            tensor.shape == reference.shape,
            f"{name} has shape {list(tensor.shape)}, but {first} has {list(reference.shape)}: they "
            "must be the same, nothing is broadcast; expand_trailing repeats a row's number over "
            "the steps of the row",
        )


def require_bool(**tensors: Tensor) -> None:
    """Refuse flags and masks that are not boolean.

    Raises:
        RLInputError: names the tensor and its dtype.
    """
    for name, tensor in tensors.items():
        require(
            tensor.dtype == torch.bool,
            f"{name} has dtype {tensor.dtype}, but must be torch.bool: pass {name}.bool() if "
            "nonzero means true",
        )


def require_finite(name: str, tensor: Tensor, mask: Tensor) -> None:
    """Refuse NaN and infinity at valid positions. Waits for the device: once per iteration only.

    Args:
        name: what the tensor is called in the message.
        tensor: any shape.
        mask: bool, the same shape.

    Raises:
        RLInputError: names the first offending entry.
    """
    # A sum is finite where no summand is not; the other way round, large summands may overflow.
    if math.isfinite(torch.where(mask, tensor, 0.0).sum()):
        return
    bad = mask & ~torch.isfinite(tensor)
    if bool(bad.any()):
        index = [int(i) for i in bad.nonzero()[0]]
        raise RLInputError(
            f"{name}{index} is {float(tensor[tuple(index)])} and {int(bad.sum())} of "
            f"{int(mask.sum())} valid entries are not finite: one such number would spread over "
            "the whole batch; mask the entry out, or mend what produced it"
        )


def expand_trailing(x: Tensor, like: Tensor) -> Tensor:
    """Repeat each number of ``x`` over the trailing dimensions of ``like``.

    This is the explicit way from one number per row to one per step: ``[B]`` to ``[B, L]``, or
    ``[B, C]`` to ``[B, C, A]``.

    Raises:
        RLInputError: the shape of ``x`` is not the beginning of the shape of ``like``.
    """
    require(
        like.shape[: x.ndim] == x.shape,
        f"shape {list(x.shape)} is not the beginning of {list(like.shape)}: cannot say which "
        "number belongs to which row",
    )
    return x.reshape(*x.shape, *[1] * (like.ndim - x.ndim)).expand(like.shape)


def where_valid(x: Tensor, mask: Tensor, fill: float = 0.0) -> Tensor:
    """Return ``x`` where ``mask`` is true and ``fill`` elsewhere, with gradient 0 there.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    require_same_shape(x=x, mask=mask)
    return torch.where(mask, x, fill)


def masked_sum(x: Tensor, mask: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Sum over the valid positions, over all of them or along ``dim``; at least in float32.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    return where_valid(x, mask).sum(dim=dim, dtype=accumulation_dtype(x))


def masked_mean(x: Tensor, mask: Tensor) -> Mean:
    """Mean over all valid positions, as its sum and count; ``.over()`` divides.

    Raises:
        RLInputError: shapes differ, or the mask is not boolean.
    """
    return Mean(masked_sum(x, mask), mask.sum().to(accumulation_dtype(x)))


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which ``x`` is summed: its own, but never less than float32."""
    return torch.promote_types(x.dtype, torch.float32)
