"""The critic's head on a hidden state of a large model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

_ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}


class ValueHead(nn.Module):
    """Linear layers with activations between, from a hidden state to values, in float32.

    Its weights stand under ``mlp.{0, 2, 4, ...}``, as RLinf's do.

    Args:
        inputs: width of the hidden state.
        outputs: 1, or the length of a chunk for a value per action.
        hidden: widths between; (512, 128) after OpenVLA, (512, 256, 128) after pi0's expert.
        activation: ``gelu`` or ``relu``.
        last_bias: whether the last layer has a bias.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int = 1,
        hidden: Sequence[int] = (512, 128),
        activation: str = "gelu",
        last_bias: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, narrow in itertools.pairwise((inputs, *hidden)):
            layers += [nn.Linear(wide, narrow), _ACTIVATIONS[activation]()]
        last = nn.Linear(hidden[-1] if hidden else inputs, outputs, bias=last_bias)
        self.mlp = nn.Sequential(*layers, last)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return float32 [B, outputs] of [B, inputs]."""
        value: Tensor = self.mlp(hidden.to(next(self.parameters()).dtype))
        return value.float()
