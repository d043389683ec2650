"""What the contestants that use torch share: inputs as tensors, and a gradient on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def tensors(i: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs as tensors."""
    return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in i.items()}


def loss_of(leaf: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a call that gives ``loss(leaf)``, or its gradient by ``leaf``."""

    def call(backward: bool) -> Any:
        if not backward:
            return loss(leaf)
        variable = leaf.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(variable), variable)
        return gradient

    return call
