"""The learned noise of ``flow_noise``; the critic's head is the core's."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from rlinf_plugin_pi0.shapes import NOISE_HIDDEN


class NoiseHead(nn.Module):
    """Reads each action's deviation from the expert's output; the range is kept by a tanh.

    Args:
        width: of the expert.
        outputs: width of an action.
        limits: least and largest deviation.
    """

    logvar_min: Tensor
    logvar_max: Tensor

    def __init__(self, width: int, outputs: int, limits: tuple[float, float]) -> None:
        super().__init__()
        widths = (width, *NOISE_HIDDEN, outputs)
        parts = [
            nn.ModuleDict({"linear_1": nn.Linear(i, o)}) for i, o in itertools.pairwise(widths)
        ]
        self.mlp_logvar = nn.ModuleDict({"moduleList": nn.ModuleList(parts)})
        for name, limit in zip(("logvar_min", "logvar_max"), limits, strict=True):
            self.register_buffer(name, torch.tensor([2 * math.log(limit)]))

    def forward(self, x: Tensor) -> Tensor:
        """Return deviations [B, H, outputs] for the expert's output [B, H, width]."""
        for part in self.mlp_logvar["moduleList"]:
            x = torch.tanh(part["linear_1"](x))
        low, high = self.logvar_min, self.logvar_max
        return (0.5 * (low + (high - low) * (x + 1) / 2)).exp().float()
