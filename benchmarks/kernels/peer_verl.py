"""Functions of verl, which are made for language models. Its GAE also whitens the advantages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

from benchmarks.kernels.cases import CLIP, GAMMA, GROUP, LAM, VALUE_CLIP
from benchmarks.kernels.tensors import loss_of, tensors

DISTRIBUTION = "verl"


def _inputs(i: dict[str, Any]) -> dict[str, Any]:
    t = tensors(i)
    return {**t, "mask": t["mask"].float()}


def gae(i: dict[str, Any]) -> Any:
    """Return the returns."""
    t = _inputs(i)
    return lambda _: (
        core_algos.compute_gae_advantage_return(t["reward"], t["value"], t["mask"], GAMMA, LAM)[1]
        * t["mask"]
    )


def grpo(i: dict[str, Any]) -> Any:
    """Return advantages per token, from scores that stand at the last token."""
    t = _inputs(i)
    scores = t["mask"] * 0
    scores[:, -1] = t["score"]
    index = np.repeat(np.arange(len(scores) // GROUP), GROUP)
    return lambda _: core_algos.compute_grpo_vectorized_outcome_advantage(
        scores.clone(), t["mask"], index
    )[0]


def ppo(i: dict[str, Any]) -> Any:
    """Return the loss; a dual clip of 1e9 is none."""
    t = _inputs(i)
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        clip_ratio=CLIP,
        clip_ratio_low=CLIP,
        clip_ratio_high=CLIP,
        clip_ratio_c=1e9,
        ppo_micro_batch_size_per_gpu=1,
    )
    return loss_of(
        t["logp"],
        lambda logp: core_algos.compute_policy_loss_vanilla(
            t["old"], logp, t["advantage"], t["mask"], config=config
        )[0],
    )


def value(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = _inputs(i)
    return loss_of(
        t["new_value"],
        lambda new: core_algos.compute_value_loss(
            new, t["returns"], t["value"], t["mask"], VALUE_CLIP
        )[0],
    )


def kl(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = _inputs(i)
    return loss_of(
        t["logp"],
        lambda logp: core_algos.agg_loss(
            core_algos.kl_penalty(logp, t["old"], "k3"), t["mask"], "token-mean"
        ),
    )


def _entropy(mode: str) -> Callable[[dict[str, Any]], Any]:
    def entropy(i: dict[str, Any]) -> Any:
        t = _inputs(i)
        return loss_of(t["entropy"], lambda x: -core_algos.agg_loss(x, t["mask"], mode))

    return entropy


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gae": gae,
    "grpo": grpo,
    "ppo": ppo,
    "value": value,
    "kl": kl,
    "entropy": _entropy("token-mean"),
    "sequences": _entropy("seq-mean-token-mean"),
}
SIZES = ("language",)
