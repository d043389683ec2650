"""Normalisation of states and actions, and back, in float64: bounds and z-scores.

A vector may be longer than its statistics: models that pad to a fixed width get and give padded
ones, and each class says what it does with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlinf_core.models.statistics import Statistics


def pad_last(x: Tensor, width: int) -> Tensor:
    """Return ``x`` [..., D] with zeros after it, up to [..., width]."""
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


class Bounds:
    """Maps [low, high] to [-1, 1]: ``2 (x - low) / (high - low + epsilon) - 1``.

    Dimensions that the mask leaves out, and those beyond the statistics, stay as they are. OpenVLA
    has epsilon 0, OpenVLA-OFT and RLinf 1e-8, openpi (quantiles) 1e-6.

    Args:
        low: one number per dimension.
        high: likewise.
        mask: which dimensions are normalised; None means all.
        epsilon: added to the range.
    """

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        mask: Sequence[bool] | None = None,
        epsilon: float = 0.0,
    ) -> None:
        self.low = torch.tensor(low, dtype=torch.float64)  # [D]
        self.range = torch.tensor(high, dtype=torch.float64) - self.low + epsilon  # [D]
        self.mask = torch.tensor(mask if mask is not None else [True] * len(low))  # [D]

    @staticmethod
    def of(statistics: Statistics, epsilon: float) -> Bounds:
        """Return those from q01 to q99."""
        values = statistics.values
        return Bounds(values["q01"], values["q99"], statistics.mask, epsilon)

    def normalize(self, x: Tensor, clip: bool = False) -> Tensor:
        """Return float64 [..., D] of ``x`` [..., D]; ``clip`` keeps it within -1 and 1."""
        x, low, size, mask = self._fit(x)
        normal = torch.where(mask, 2 * (x - low) / size - 1, x)
        return normal.clamp(-1, 1) if clip else normal

    def unnormalize(self, x: Tensor) -> Tensor:
        """Return float64 [..., D] of a normalised ``x`` [..., D]."""
        x, low, size, mask = self._fit(x)
        return torch.where(mask, 0.5 * (x + 1) * size + low, x)

    def _fit(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        low, size, mask = (t.to(x.device) for t in (self.low, self.range, self.mask))
        more = x.shape[-1] - len(low)
        size = torch.nn.functional.pad(size, (0, more), value=1.0)
        return x.double(), pad_last(low, x.shape[-1]), size, pad_last(mask, x.shape[-1])


class ZScore:
    """Maps mean and deviation to 0 and 1: ``(x - mean) / (std + epsilon)``.

    Dimensions beyond the statistics have mean 0 and deviation 1.

    Args:
        mean: one number per dimension.
        std: likewise.
        epsilon: added to the deviation; openpi's is 1e-6.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], epsilon: float = 1e-6) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float64)  # [D]
        self.std = torch.tensor(std, dtype=torch.float64)  # [D]
        self.epsilon = epsilon

    def normalize(self, x: Tensor) -> Tensor:
        """Return float64 [..., D] of ``x`` [..., D]."""
        x, mean, size = self._fit(x)
        return (x - mean) / size

    def unnormalize(self, x: Tensor) -> Tensor:
        """Return float64 [..., D] of a normalised ``x`` [..., D]."""
        x, mean, size = self._fit(x)
        return x * size + mean

    def _fit(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        more = x.shape[-1] - len(self.mean)
        std = torch.nn.functional.pad(self.std, (0, more), value=1.0).to(x.device)
        return x.double(), pad_last(self.mean.to(x.device), x.shape[-1]), std + self.epsilon
