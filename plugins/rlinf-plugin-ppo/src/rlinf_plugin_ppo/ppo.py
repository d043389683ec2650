"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), to be read in one sitting.

An iteration has two parts. Once, :meth:`PPO.advantages` looks at a finished rollout and says of
each decision how much better it turned out than the critic had expected. Then, for each minibatch
of a few epochs, :meth:`PPO.loss` says in which direction the weights should move: towards decisions
that turned out well, but only as long as the policy stays near the one that acted.

A *decision* is a chunk of C actions, because that is what the policy chooses at once. T steps, N
environments, B rows of the flattened [T, N], C actions of A dimensions. The formulas themselves
are the functions of ``rlinf_core.api.rl``; this file is the order in which they are used. Another
term of the loss goes into :meth:`PPO.loss`, its options into ``config.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rlinf_core.api import Batch, CapabilityError, Counts, Eval, Needs, rl
from rlinf_plugin_ppo.config import PPOConfig


class PPO:
    """Clipped surrogate objective, generalised advantages, a critic and an entropy bonus.

    It keeps no state: what an update needs is in the batch.
    """

    def __init__(self, config: PPOConfig) -> None:
        self.config = config
        self.needs = Needs(values=True, proximal_logp=config.decoupled)

    # --- once per iteration: what were the decisions worth? ------------------------------------

    def advantages(self, batch: Batch, reduce: Callable[[Tensor], Tensor]) -> Batch:
        """Return the rollout with what the loss needs added.

        Args:
            batch: a trajectory, as ``rlinf_core.data.trajectory`` describes it, with ``value`` and
                ``next_value``.
            reduce: sums a tensor over all ranks.

        Returns:
            the batch with, each [T, N]: ``mask`` (bool: the decision was executed, at least in
            part), ``advantage`` (0 where masked), ``return`` (what the critic should have said)
            and ``explained_variance`` (one number about the critic, the same in every row, so
            that it can be logged with the loss).

        Raises:
            RLInputError: a valid reward or value is not finite.
        """
        c = self.config
        valid = batch["valid"]  # [T, N, C]
        value, next_value = batch["value"], batch["next_value"]  # [T, N] each

        # 1. A chunk earns the sum of its executed steps; what stands behind an episode's end is
        #    padding. It is over if one of its executed steps was the last.
        reward = rl.chunk_rewards(batch["reward"], valid) * c.reward_scale  # [T, N]
        terminated = rl.chunk_flags(batch["terminated"], valid)  # [T, N]
        truncated = rl.chunk_flags(batch["truncated"], valid)  # [T, N]
        mask = valid.any(dim=2)  # [T, N]

        # 2. Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438, eq. 16):
        #        delta_t = r_t + gamma V(s_t+1) - V(s_t)
        #        A_t     = delta_t + gamma lambda A_t+1
        #    After a termination there is no future, so V(s_t+1) is 0. A time limit is no fact about
        #    the world: there V(s_t+1) is the value of the last observation (Pardo et al. 2018,
        #    arXiv 1712.00378). Advantages never reach over either. ``next_value`` is V(s_t+1) in
        #    the same episode, which covers the rollout's end as well.
        advantage, returns = rl.gae(
            reward,
            torch.cat([value, next_value[-1:]]),  # [T+1, N]
            terminated,
            truncated,
            final_values=next_value,
            mask=mask,
            gamma=c.gamma,
            lam=c.gae_lambda,
        )

        # 3. Rewards come in any unit; the size of a step should not depend on it (Huang et al.
        #    2022, "The 37 implementation details of proximal policy optimization", detail 7, which
        #    normalises per minibatch). Here over all ranks and all valid rows at once, so that
        #    the numbers depend on no split.
        if c.normalize_advantages:
            advantage = rl.normalize(advantage, mask, reduce)
        explained = rl.explained_variance(value, returns, mask, reduce)  # []
        return batch.with_entries(
            advantage=advantage,
            mask=mask,
            explained_variance=explained.to(value.dtype).expand(mask.shape),
            **{"return": returns},
        )

    # --- every update: which way to move? ------------------------------------------------------

    def loss(self, minibatch: Batch, evaluation: Eval, counts: Counts) -> tuple[Tensor, rl.Metrics]:
        """Return this micro-batch's share of the loss, and its metrics as (sum, count).

        ``policy loss + value_coefficient * value loss - entropy_coefficient * entropy``, each a
        mean over the *whole* minibatch: sums here are divided by its global counts, so the
        gradients of micro-batches and ranks simply add. A chunk counts once per minibatch at
        level "chunk", an action or a dimension at the finer levels.

        Args:
            minibatch: B rows of what :meth:`advantages` returned.
            evaluation: log-probs, entropies and values of these rows under the weights of now.
            counts: of the whole minibatch.

        Returns:
            a scalar, and ``policy_loss``, ``value_loss``, ``entropy``, ``ratio``,
            ``clip_fraction``, ``approx_kl``, ``explained_variance`` and a few more.

        Raises:
            CapabilityError: the model gives no value, or no entropy though it has a weight.
            RLInputError: the model's log-probs are coarser than ``logprob_level``; shapes differ.
        """
        c = self.config
        valid = minibatch["valid"]  # [B, C]
        rows = minibatch["mask"]  # [B]

        # 1. The log-prob of a decision is the sum over its executed parts: parts are independent
        #    given the state. Steps behind an episode's end have no part in it and no gradient.
        logp = rl.sum_to_level(evaluation.logp, c.logprob_level, valid)  # [B], [B, C] or [B, C, A]
        old_logp = rl.sum_to_level(minibatch["logp"], c.logprob_level, valid)
        if logp.ndim == 1:
            mask, count = rows, counts.rows
        else:
            mask = rl.expand_trailing(valid, logp)
            count = counts.steps * logp.shape[2:].numel()  # A dimensions a step at level "token"

        # 2. The clipped surrogate (arXiv 1707.06347, eq. 7): ratio r = exp(logp - old logp), and
        #        loss = -min(r A, clip(r, 1 - eps, 1 + eps) A)
        #    Once a good decision is eps likelier than it was, pushing on gains nothing.
        advantage = rl.expand_trailing(minibatch["advantage"], logp)
        clip = {
            "clip_low": c.clip_ratio,
            "clip_high": c.clip_ratio if c.clip_ratio_high is None else c.clip_ratio_high,
            "dual_clip": c.dual_clip,
        }
        if not c.decoupled:
            policy_loss, metrics = rl.ppo_loss(logp, old_logp, advantage, mask, **clip, count=count)
        else:
            #    Where the weights that acted are older than those the update starts from, the clip
            #    is around the latter, and exp(proximal - old) corrects for the former (Hilton et
            #    al. 2021, arXiv 2110.00641, sec. 3). Decisions that are left out still count.
            policy_loss, metrics = rl.decoupled_ppo_loss(
                logp,
                old_logp,
                rl.sum_to_level(minibatch["proximal_logp"], c.logprob_level, valid),
                advantage,
                mask,
                **clip,
                behave_weight_threshold=c.behave_weight_threshold,
                count=count,
            )

        # 3. The critic learns the returns (eq. 9, L^VF); there is one value per row.
        value_loss, value_metrics = rl.value_loss(
            _wanted(evaluation.value, "value"),
            minibatch["value"],
            minibatch["return"],
            rows,
            value_clip=math.inf if c.value_clip is None else c.value_clip,
            huber_delta=math.inf if c.huber_delta is None else c.huber_delta,
            count=counts.rows,
        )
        loss = policy_loss + c.value_coefficient * value_loss
        metrics = {**metrics, **value_metrics}

        # 4. The entropy bonus keeps the policy from settling early (eq. 9, S).
        if evaluation.entropy is not None or c.entropy_coefficient:
            entropy = rl.sum_to_level(
                _wanted(evaluation.entropy, "entropy"), c.logprob_level, valid
            )
            entropy_loss, entropy_metrics = rl.entropy_loss(entropy, mask, count=count)
            if c.entropy_coefficient:
                loss = loss + c.entropy_coefficient * entropy_loss
            metrics.update(entropy_metrics)

        # 5. How far has the policy moved? k3 = (r - 1) - log r estimates KL(old || new) without
        #    bias and is never negative (J. Schulman 2020, "Approximating KL divergence").
        with torch.no_grad():
            metrics["approx_kl"] = rl.masked_mean(rl.k3(old_logp, logp), mask)
            metrics["explained_variance"] = rl.masked_mean(minibatch["explained_variance"], rows)
        return loss, metrics

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Return whether ``approx_kl`` of the last step exceeds ``target_kl``, where one is set."""
        target = self.config.target_kl
        return target is not None and metrics["approx_kl"] > target


def _wanted(tensor: Tensor | None, what: str) -> Tensor:
    if tensor is None:
        raise CapabilityError(
            f"the model's evaluate() gives no {what}, which this PPO needs; choose a model that "
            f"declares {what!r}"
            + ("" if what == "value" else ", or set algorithm.entropy_coefficient to 0")
        )
    return tensor
