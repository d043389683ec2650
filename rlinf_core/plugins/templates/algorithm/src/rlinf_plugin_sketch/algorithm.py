"""The algorithm ``sketch``: advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783).

T steps, N environments, B rows of the flattened [T, N], C actions in a chunk of A dimensions.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rlinf_core.api import Batch, Counts, Eval, Needs, rl
from rlinf_plugin_sketch.config import SketchConfig


class SketchAlgorithm:
    """It keeps no state: what an update needs is in the batch."""

    needs = Needs(values=True)

    def __init__(self, config: SketchConfig) -> None:
        self.config = config

    def advantages(self, batch: Batch, reduce: Callable[[Tensor], Tensor]) -> Batch:
        """Return the rollout with ``mask``, ``advantage`` and ``return`` added, [T, N] each.

        Termination never bootstraps; truncation does, from ``next_value``, the value of the last
        observation of the same episode.
        """
        valid = batch["valid"]  # [T, N, C]: false behind an episode's end
        value, next_value = batch["value"], batch["next_value"]  # [T, N]
        mask = valid.any(dim=2)
        advantage, returns = rl.gae(
            rl.chunk_rewards(batch["reward"], valid),
            torch.cat([value, next_value[-1:]]),
            rl.chunk_flags(batch["terminated"], valid),
            rl.chunk_flags(batch["truncated"], valid),
            final_values=next_value,
            mask=mask,
            gamma=self.config.gamma,
            lam=self.config.gae_lambda,
        )
        advantage = rl.normalize(advantage, mask, reduce)  # over all ranks
        return batch.with_entries(mask=mask, advantage=advantage, **{"return": returns})

    def loss(self, minibatch: Batch, evaluation: Eval, counts: Counts) -> tuple[Tensor, rl.Metrics]:
        """Return this micro-batch's share of the loss, and its metrics as (sum, count).

        Sums are divided by the counts of the whole minibatch, so that the gradients of
        micro-batches and ranks simply add.
        """
        mask = minibatch["mask"]  # [B]
        logp = rl.sum_to_level(evaluation.logp, "chunk", minibatch["valid"])  # [B]
        gain = torch.where(mask, logp * minibatch["advantage"], 0.0).sum()
        value_loss, metrics = rl.value_loss(
            evaluation.value,
            minibatch["value"],
            minibatch["return"],
            mask,
            value_clip=math.inf,  # neither clipped
            huber_delta=math.inf,  # nor bent
            count=counts.rows,
        )
        policy_loss = -gain / counts.rows
        return policy_loss + self.config.value_coefficient * value_loss, {
            **metrics,
            "policy_loss": (-gain.detach(), mask.sum()),
        }

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Return False: every update of an iteration is made."""
        return False
