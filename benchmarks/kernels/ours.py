"""Our functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.cases import CLIP, GAMMA, GROUP, LAM, VALUE_CLIP
from benchmarks.kernels.tensors import loss_of, tensors
from rlinf_core.api import rl

DISTRIBUTION = "rlinf-core"


def gae(i: dict[str, Any]) -> Any:
    """Return the returns."""
    t = tensors(i)
    if i["size"] == "language":
        return lambda _: (
            rl.token_gae(t["reward"], t["value"], t["mask"], gamma=GAMMA, lam=LAM).returns
        )
    values = torch.cat([t["value"], t["behind"][None]])
    never = torch.zeros_like(t["ended"])
    return lambda _: (
        rl.gae(
            t["reward"], values, never, t["ended"], t["final"], t["mask"], gamma=GAMMA, lam=LAM
        ).returns
    )


def grpo(i: dict[str, Any]) -> Any:
    """Return advantages per token."""
    t = tensors(i)

    def call(_: bool) -> Any:
        advantages = rl.grpo_advantages(t["score"], GROUP).advantages
        return rl.where_valid(rl.expand_trailing(advantages, t["mask"]), t["mask"])

    return call


def ppo(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(
        t["logp"],
        lambda logp: rl.ppo_loss(
            logp, t["old"], t["advantage"], t["mask"], clip_low=CLIP, clip_high=CLIP
        )[0],
    )


def value(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(
        t["new_value"],
        lambda new: rl.value_loss(
            new, t["value"], t["returns"], t["mask"], value_clip=VALUE_CLIP, huber_delta=math.inf
        )[0],
    )


def kl(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(t["logp"], lambda logp: rl.kl_loss(logp, t["old"], t["mask"], estimator="k3")[0])


def entropy(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(t["entropy"], lambda x: rl.entropy_loss(x, t["mask"])[0])


def sequences(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(
        t["entropy"],
        lambda x: rl.entropy_loss(x, t["mask"], aggregate=rl.seq_mean_token_mean)[0],
    )


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gae": gae,
    "grpo": grpo,
    "ppo": ppo,
    "value": value,
    "kl": kl,
    "entropy": entropy,
    "sequences": sequences,
}
