"""Sums over ranks: one optimizer step out of the parts that several ranks have worked on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlinf_core.api import rl


def add_up(
    total: Callable[[Tensor], Tensor],
    parameters: Sequence[nn.Parameter],
    loss: Tensor,
    metrics: rl.Metrics,
) -> tuple[Tensor, rl.Metrics]:
    """Add up gradients, in place, and the loss and metrics of all ranks.

    A parameter without a gradient on any rank keeps none, so that no optimizer moves it.

    Args:
        total: sums a tensor over all ranks.
        parameters: the same on every rank, in the same order.
        loss: this rank's share, a scalar.
        metrics: name to (sum, count); the same names on every rank.

    Returns:
        the whole loss and the metrics of all.
    """
    there = torch.stack([torch.tensor(float(p.grad is not None)) for p in parameters])  # [P]
    pairs = [torch.as_tensor(n) for pair in metrics.values() for n in pair]
    numbers = torch.stack([n.detach().double().cpu() for n in [loss, *pairs]])  # [1 + 2M]
    summed = total(torch.cat([numbers, there.double()]))
    wanted = [p for p, n in zip(parameters, summed[len(numbers) :].tolist(), strict=True) if n]

    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in wanted]
    whole = total(torch.cat([part.flatten() for part in parts]))
    for parameter, part in zip(wanted, whole.split([p.numel() for p in wanted]), strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype)

    first, *rest = summed[: len(numbers)].to(loss.device)
    return first, {n: (rest[2 * i], rest[2 * i + 1]) for i, n in enumerate(metrics)}
