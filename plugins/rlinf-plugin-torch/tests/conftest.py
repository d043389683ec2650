"""A policy of two layers and a squared error, small enough to check an update by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import pytest
import torch
from rlinf_plugin_torch.backend import LossFunction, TorchBackend
from rlinf_plugin_torch.config import TorchConfig
from safetensors.torch import save
from torch import Tensor, nn

from rlinf_core.api import Batch, Eval


class TinyPolicy(nn.Module):
    """Value from state; dropout draws from torch's random state, as a large model's may."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)
        self.dropout = nn.Dropout(dropout)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def evaluate(self, replay: Batch) -> Eval:
        value = self.head(self.dropout(torch.tanh(self.body(replay["state"])))).squeeze(-1)  # [B]
        return Eval(logp=value, entropy=None, value=value.float())


@pytest.fixture
def tiny() -> type[TinyPolicy]:
    return TinyPolicy


@pytest.fixture
def build() -> Callable[..., TorchBackend]:
    """Return a function that builds a backend of a freshly seeded tiny policy."""

    def build(
        make: Callable[[], nn.Module] = TinyPolicy, device: str = "cpu", **options: object
    ) -> TorchBackend:
        torch.manual_seed(7)
        backend = TorchBackend(TorchConfig(**options), device)
        backend.build(make)
        return backend

    return build


@pytest.fixture
def checksum() -> Callable[[Mapping[str, Tensor]], str]:
    """Return a function that digests names, dtypes, shapes and bytes of tensors."""

    def digest(tensors: Mapping[str, Tensor]) -> str:
        own = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()}
        return hashlib.sha256(save(own)).hexdigest()

    return digest


@pytest.fixture
def rows() -> Batch:
    """Return 12 rows of a regression, of which 7 count, unevenly spread."""
    generator = torch.Generator().manual_seed(3)
    return Batch(
        {
            "replay": {"state": torch.randn(12, 3, generator=generator)},
            "target": torch.randn(12, generator=generator),
            "mask": torch.tensor([1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]).bool(),
        }
    )


@pytest.fixture
def squared_error() -> LossFunction:
    """Return the mean squared error over the 7 valid rows, as each micro-batch's share."""

    def loss(micro: Batch, evaluation: Eval) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        error = (evaluation.value - micro["target"]).square()  # [B]
        total = torch.where(micro["mask"], error, 0.0).sum()
        return total / 7, {"error": (total.detach(), micro["mask"].sum())}

    return loss
