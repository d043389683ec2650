"""Functions of the package ``rlinf``. Its GAE knows no time limits and no mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rlinf.algorithms.advantages import compute_gae_advantages_and_returns, compute_grpo_advantages
from rlinf.algorithms.losses import compute_ppo_actor_loss, compute_ppo_critic_loss

from benchmarks.kernels.cases import CLIP, GAMMA, GROUP, LAM, VALUE_CLIP
from benchmarks.kernels.tensors import loss_of, tensors

DISTRIBUTION = "rlinf"


def gae(i: dict[str, Any]) -> Any:
    """Return the returns; every end is a termination, so they are not the yardstick's."""
    t = tensors(i)
    values = torch.cat([t["value"], t["behind"][None]])
    dones = torch.cat([torch.zeros_like(t["ended"][:1]), t["ended"]])
    return lambda _: compute_gae_advantages_and_returns(
        t["reward"], GAMMA, LAM, values, normalize_advantages=False, dones=dones
    )[1]


def grpo(i: dict[str, Any]) -> Any:
    """Return advantages per token."""
    t = tensors(i)
    mask = t["mask"].T.contiguous()  # [L, B]
    return lambda _: compute_grpo_advantages(t["score"], mask, GROUP)[0].T


def ppo(i: dict[str, Any]) -> Any:
    """Return the loss."""
    t = tensors(i)
    return loss_of(
        t["logp"],
        lambda logp: compute_ppo_actor_loss(logp, t["old"], CLIP, CLIP, t["advantage"], t["mask"])[
            0
        ],
    )


def value(i: dict[str, Any]) -> Any:
    """Return the loss, with a Huber delta that nothing reaches; also gives explained variance."""
    t = tensors(i)
    return loss_of(
        t["new_value"],
        lambda new: compute_ppo_critic_loss(
            new, t["returns"], t["value"], VALUE_CLIP, 1e9, t["mask"]
        )[0],
    )


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gae": gae,
    "grpo": grpo,
    "ppo": ppo,
    "value": value,
}
DIFFERENT = ("gae",)
SKIPPED = (("gae", "language"),)
