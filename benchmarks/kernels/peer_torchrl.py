"""Functions of torchrl. Its losses are modules around a policy and are not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchrl.objectives.value.functional import (
    generalized_advantage_estimate,
    vec_generalized_advantage_estimate,
)

from benchmarks.kernels.cases import GAMMA, LAM
from benchmarks.kernels.tensors import tensors

DISTRIBUTION = "torchrl"


def _gae(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    def gae(i: dict[str, Any]) -> Any:
        t = tensors(i)
        if i["size"] == "language":  # a token behind the mask ends the sequence
            time_last = [t["value"] * t["mask"], t["reward"] * t["mask"]]
            value, reward = (x.unsqueeze(-1) for x in time_last)  # [B, L, 1]
            behind = torch.zeros_like(value[:, :1])
            following = torch.cat([value[:, 1:], behind], dim=1)
            done = ~torch.nn.functional.pad(t["mask"][:, 1:], (0, 1)).unsqueeze(-1)
            finish = lambda returns: returns.squeeze(-1) * t["mask"]  # noqa: E731
        else:
            value, reward = (t[k].T.unsqueeze(-1) for k in ("value", "reward"))  # [N, T, 1]
            following = torch.cat([t["value"][1:], t["behind"][None]])
            following = torch.where(t["ended"], t["final"], following).T.unsqueeze(-1)
            done = t["ended"].T.unsqueeze(-1)
            finish = lambda returns: returns.squeeze(-1).T  # noqa: E731
        never = torch.zeros_like(done) if i["size"] == "embodied" else done
        return lambda _: finish(function(GAMMA, LAM, value, following, reward, done, never)[1])

    return gae


FUNCTIONS = {
    "gae": _gae(generalized_advantage_estimate),
    "gae, vectorised": _gae(vec_generalized_advantage_estimate),
}
