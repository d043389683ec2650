"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300), to be read in one sitting.

There is no critic. Several episodes start from one initial state, and how good an episode was is
seen by comparing its score with those of its group. An iteration has two parts. Once,
:meth:`GRPO.advantages` scores the episodes of a finished rollout and compares them. Then, for each
minibatch of a few epochs, :meth:`GRPO.loss` says in which direction the weights should move:
towards all decisions of the better episodes and away from those of the worse.

A *group* is S = ``group_size`` consecutive environments that begin the rollout in the same initial
state. An *episode* here is what an environment did from there to its first end within the rollout:

* what comes after that end, be it a second episode, is masked;
* an episode that the rollout's end cuts off counts with what it earned until then.

So the length of a rollout is the time limit that episodes are compared under. A *decision* is a
chunk of C actions of A dimensions. T steps, N environments, B rows of the flattened [T, N]. The
formulas themselves are the functions of ``rlinf_core.api.rl``; this file is the order in which they
are used. Another term of the loss goes into :meth:`GRPO.loss`, its options into ``config.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rlinf_core.api import Batch, CapabilityError, Counts, Eval, Needs, RLInputError, rl
from rlinf_plugin_grpo.config import GRPOConfig

ROLLOUT_METRICS = ("score", "equal_groups", "kept_groups")
"""Numbers about a whole rollout; each stands in every row, so that it is logged with the loss."""


class GRPO:
    """Clipped surrogate objective, advantages from groups, and an entropy bonus.

    It keeps no state: what an update needs is in the batch.
    """

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config
        self.needs = Needs(values=False, group_size=config.group_size)

    # --- once per iteration: which episodes were better? ---------------------------------------

    def advantages(self, batch: Batch, reduce: Callable[[Tensor], Tensor]) -> Batch:
        """Return the rollout with what the loss needs added.

        Args:
            batch: a trajectory, as ``rlinf_core.data.trajectory`` describes it; its N columns are
                whole groups, and every column begins with the first step of an episode.
            reduce: sums a tensor over all ranks.

        Returns:
            the batch with ``valid`` [T, N, C] narrowed to the steps that count and added, each
            [T, N]: ``mask`` (bool: a step of the decision counts), ``advantage`` (0 where masked;
            with ``aggregation: episode`` times the weight of its episode), and about the whole
            rollout ``score`` (mean over episodes, in units of reward), ``equal_groups`` (share of
            groups whose scores are all equal, which teach nothing) and ``kept_groups`` (share of
            groups within the bounds of ``group_reward_min`` and ``group_reward_max``).

        Raises:
            RLInputError: the columns are not whole groups, or a score is not finite.
        """
        c = self.config
        _require_groups(batch["env"], c.group_size)

        # 1. Of each environment the first episode counts, up to and including its end; its score
        #    is all that it earned.
        ended = (batch["terminated"] | batch["truncated"]) & batch["valid"]  # [T, N, C]
        valid = batch["valid"] & rl.valid_until_done(ended)  # [T, N, C]
        score = rl.trajectory_scores(batch["reward"], valid)  # [N]
        acted = valid.any(dim=2).any(dim=0)  # [N]: the others have no score

        # 2. An episode is as good as it is better than its group (arXiv 2402.03300, sec. 4.1.2):
        #        A_i = (r_i - mean(r)) / (std(r) + eps)
        #    Where all scores are equal there is nothing to learn, and A is exactly 0.
        advantage, equal = rl.grpo_advantages(
            score, c.group_size, acted, divide_by_std=c.normalize_by_std
        )

        # 3. Groups that are too easy or too hard are left out altogether: they neither push nor
        #    count (DAPO's dynamic sampling, Yu et al. 2025, arXiv 2503.14476, sec. 3.2, which
        #    samples others in their stead).
        kept = rl.filter_groups(
            score,
            c.group_size,
            acted,
            lower=-math.inf if c.group_reward_min is None else c.group_reward_min,
            upper=math.inf if c.group_reward_max is None else c.group_reward_max,
        )
        valid = valid & kept.keep_rows.reshape(1, -1, 1)
        mask = valid.any(dim=2)  # [T, N]

        # 4. All decisions of an episode share its advantage. Their loss is a mean over decisions,
        #    so for every episode to weigh the same (arXiv 2402.03300, eq. 3) those of short ones
        #    weigh more. The mean weight is 1, over all ranks.
        if c.aggregation == "episode":
            parts = mask.sum(dim=0) if c.logprob_level == "chunk" else valid.sum(dim=(0, 2))  # [N]
            total, episodes = reduce(torch.stack([parts.sum(), (parts > 0).sum()])).unbind()
            advantage = advantage * (total / episodes.clamp(min=1)) / parts.clamp(min=1)
        about = {
            "score": rl.masked_moments(score, acted, reduce).mean,
            "equal_groups": _share(equal.total, equal.n, reduce),
            "kept_groups": _share(kept.keep.sum(), equal.n, reduce),
        }
        return batch.with_entries(
            valid=valid,
            mask=mask,
            advantage=rl.trajectory_to_steps(advantage, mask, dim=1),
            **{name: about[name].float().expand(mask.shape) for name in ROLLOUT_METRICS},
        )

    # --- every update: which way to move? ------------------------------------------------------

    def loss(self, minibatch: Batch, evaluation: Eval, counts: Counts) -> tuple[Tensor, rl.Metrics]:
        """Return this micro-batch's share of the loss, and its metrics as (sum, count).

        ``policy loss - entropy_coefficient * entropy``, each a mean over the *whole* minibatch:
        sums here are divided by its global counts, so the gradients of micro-batches and ranks
        simply add. A group was compared before anything was split, so it may be cut anywhere.

        Args:
            minibatch: B rows of what :meth:`advantages` returned.
            evaluation: log-probs and entropies of these rows under the weights of now.
            counts: of the whole minibatch, of the ``valid`` that :meth:`advantages` returned.

        Returns:
            a scalar, and ``policy_loss``, ``ratio``, ``clip_fraction``, ``dual_fraction``,
            ``approx_kl``, ``score``, ``equal_groups``, ``kept_groups`` and, where the model gives
            one, ``entropy``. A minibatch in which nothing counts has loss 0 and gradient 0.

        Raises:
            CapabilityError: the model gives no entropy though it has a weight.
            RLInputError: the model's log-probs are coarser than ``logprob_level``; shapes differ.
        """
        c = self.config
        valid = minibatch["valid"]  # [B, C]

        # 1. The log-prob of a decision is the sum over its executed parts: parts are independent
        #    given the state. Steps that do not count have no part in it and no gradient.
        logp = rl.sum_to_level(evaluation.logp, c.logprob_level, valid)  # [B], [B, C] or [B, C, A]
        old_logp = rl.sum_to_level(minibatch["logp"], c.logprob_level, valid)
        if logp.ndim == 1:
            mask, count = minibatch["mask"], counts.rows
        else:
            mask = rl.expand_trailing(valid, logp)
            count = counts.steps * logp.shape[2:].numel()  # A dimensions a step at level "token"

        # 2. The clipped surrogate (Schulman et al. 2017, arXiv 1707.06347, eq. 7) with ratio
        #    r = exp(logp - old logp) and the two limits of DAPO (arXiv 2503.14476, sec. 3.1):
        #        loss = -min(r A, clip(r, 1 - eps, 1 + eps_high) A)
        loss, metrics = rl.ppo_loss(
            logp,
            old_logp,
            rl.expand_trailing(minibatch["advantage"], logp),
            mask,
            clip_low=c.clip_ratio,
            clip_high=c.clip_ratio if c.clip_ratio_high is None else c.clip_ratio_high,
            dual_clip=c.dual_clip,
            count=count,
        )

        # 3. The entropy bonus keeps the policy from settling early.
        if evaluation.entropy is None and c.entropy_coefficient:
            raise CapabilityError(
                "the model's evaluate() gives no entropy; choose a model that declares 'entropy', "
                "or set algorithm.entropy_coefficient to 0"
            )
        if evaluation.entropy is not None:
            entropy = rl.sum_to_level(evaluation.entropy, c.logprob_level, valid)
            entropy_loss, entropy_metrics = rl.entropy_loss(entropy, mask, count=count)
            if c.entropy_coefficient:
                loss = loss + c.entropy_coefficient * entropy_loss
            metrics.update(entropy_metrics)

        # 4. How far has the policy moved? k3 = (r - 1) - log r estimates KL(old || new) without
        #    bias and is never negative (J. Schulman 2020, "Approximating KL divergence"). What is
        #    said of the whole rollout is said even where none of these rows counts.
        with torch.no_grad():
            metrics["approx_kl"] = rl.masked_mean(rl.k3(old_logp, logp), mask)
            every = torch.ones_like(minibatch["mask"])
            for name in ROLLOUT_METRICS:
                metrics[name] = rl.masked_mean(minibatch[name], every)
        return loss, metrics

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Return whether ``approx_kl`` of the last step exceeds ``target_kl``, where one is set."""
        target = self.config.target_kl
        return target is not None and metrics["approx_kl"] > target


def _require_groups(env: Tensor, size: int) -> None:
    """Refuse a rollout whose columns are not whole groups in order; ``env`` is int64 [T, N]."""
    ids = env[0].tolist()  # [N]
    for first in range(0, len(ids), size):
        members = ids[first : first + size]
        if members[0] % size or members != list(range(members[0], members[0] + size)):
            raise RLInputError(
                f"columns {first} to {first + len(members) - 1} of the rollout are of environments "
                f"{members}, wanted a whole group of {size}, such as {list(range(size))}: a group "
                "is never split; make the environments of every stage and worker a multiple of "
                "algorithm.group_size"
            )


def _share(part: Tensor, whole: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Return part / whole over all ranks, a scalar; 0 where there is nothing."""
    return rl.Mean(*reduce(torch.stack([part.to(whole.dtype), whole])).unbind()).over()
