"""Actions as tokens: bins of [-1, 1] that are the last ids of a vocabulary.

Log-probs are those within the bins: the logits are sliced first, then divided by the temperature,
then normalised, in this order wherever tokens are drawn or scored.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlinf_core.rl.distributions import categorical_entropy, categorical_logprobs


class ActionBins:
    """Converts actions to ids ``end - bins .. end - 1`` and back (OpenVLA, arXiv 2406.09246).

    ``bins`` edges stand evenly from -1 to 1; an action is the centre between two. There is one
    centre fewer than ids, so the lowest two ids mean the same.

    Args:
        bins: number of ids.
        end: one more than the highest id.
    """

    def __init__(self, bins: int, end: int) -> None:
        self.first, self.end, self.bins = end - bins, end, bins
        edges = np.linspace(-1.0, 1.0, bins)  # torch's own differs in the last bit
        self.edges = torch.from_numpy(edges)  # [bins] float64
        self.centers = torch.from_numpy((edges[:-1] + edges[1:]) / 2)  # [bins - 1] float64

    def encode(self, actions: Tensor) -> Tensor:
        """Return int64 ids of actions of any shape; an edge belongs to the bin above it."""
        clipped = actions.double().clamp(-1, 1).contiguous()
        return self.end - torch.bucketize(clipped, self.edges.to(actions.device), right=True)

    def decode(self, ids: Tensor) -> Tensor:
        """Return float64 actions of ids of any shape; ids outside the bins are clipped to them."""
        index = (self.end - 1 - ids).clamp(0, self.bins - 2)
        return self.centers.to(ids.device)[index]

    def choose(self, logits: Tensor, temperature: float, gumbel: Tensor | None) -> Tensor:
        """Return one id for each row of logits.

        Args:
            logits: [..., V].
            temperature: positive; read only where ``gumbel`` is given.
            gumbel: [..., bins] Gumbel noise to sample with; None takes the likeliest bin, which no
                option of sampling changes.

        Returns:
            int64 [...].
        """
        within = self._within(logits)
        if gumbel is not None:
            within = within / temperature + gumbel
        return within.argmax(dim=-1) + self.first

    def score(self, logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Return log-prob and entropy [...] in nats of ids [...] under logits [..., V].

        Raises:
            RLInputError: shapes do not fit, or the temperature is not positive.
        """
        within = self._within(logits)
        logp = categorical_logprobs(within, ids - self.first, temperature=temperature)
        return logp, categorical_entropy(within, temperature=temperature)

    def _within(self, logits: Tensor) -> Tensor:
        return logits[..., self.first : self.end].float()
