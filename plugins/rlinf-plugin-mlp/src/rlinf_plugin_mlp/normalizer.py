"""Running statistics of observations: frozen while an iteration runs, carried with the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlinf_core.api import RLInputError, rl

EPSILON = 1e-8
"""Added to the variance, so that a constant column becomes 0 and not NaN."""


class Normalizer(nn.Module):
    """Maps a vector to how many standard deviations it lies from the mean of those seen so far.

    The statistics are buffers, so they are saved, sent and versioned with the weights. Before
    anything was seen they are mean 0 and variance 1.

    Args:
        width: S, the number of columns.
        clip: results are clipped to plus and minus this.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, clip: float) -> None:
        super().__init__()
        self.clip = clip
        # float64: after 10^8 rows a float32 mean could no longer be moved by one more batch.
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))  # []
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))  # [S]
        self.register_buffer("variance", torch.ones(width, dtype=torch.float64))  # [S]

    def forward(self, x: Tensor) -> Tensor:
        """Return float32 [..., S] in standard deviations, clipped."""
        scale = (self.variance + EPSILON).rsqrt().float()  # [S]
        return ((x.float() - self.mean.float()) * scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, x: Tensor, reduce: rl.Reduce = rl.local) -> None:
        """Take rows [B, S] of all ranks into the statistics; none at all changes nothing.

        Merges the moments of the rows with those so far: Chan, Golub and LeVeque 1979, "Updating
        formulae and a pairwise algorithm for computing sample variances".

        Raises:
            RLInputError: a number is not finite; the statistics are as before.
        """
        wide = x.double()
        bad = ~torch.isfinite(wide).all(dim=0)  # [S]
        if bad.any():
            raise RLInputError(
                f"columns {bad.nonzero().squeeze(-1).tolist()} of the observed state hold NaN or "
                "infinity, wanted finite numbers: the running mean would never recover; mend the "
                "simulator, or mark those steps invalid"
            )
        # In two passes, so that a large mean does not swallow a small variance.
        rows = reduce(wide.new_tensor([len(wide)]))  # [1]
        mean = reduce(wide.sum(dim=0)) / rows.clamp(min=1)  # [S]
        variance = reduce((wide - mean).square().sum(dim=0)) / rows.clamp(min=1)  # [S]
        total = self.count + rows.squeeze(0)
        delta = mean - self.mean
        share = rows / total.clamp(min=1)  # [1]
        self.mean += delta * share
        self.variance.lerp_(variance, share).add_(delta.square() * share * (1 - share))
        self.count.copy_(total)
