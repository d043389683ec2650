"""The network of OpenVLA under its published names (Kim et al., arXiv 2406.09246).

A sequence is ``[BOS][patches][padding][prompt][action tokens]``. Padding stands behind the patches
and counts for nothing: no query sees it, and positions skip it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlinf_core.api import ValueHead
from rlinf_plugin_openvla.architecture import Architecture
from rlinf_plugin_openvla.llama import KeyValues, causal, make_llama, positions_of, run_llama
from rlinf_plugin_openvla.vit import VisionBackbone


class Projector(nn.Module):
    """Brings features of the vision towers to the language model's width."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, 4 * features)
        self.fc2 = nn.Linear(4 * features, hidden)
        self.fc3 = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., hidden] of [..., features]."""
        out: Tensor = self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))
        return out


class OpenVLANetwork(nn.Module):
    """Vision towers, projector and language model; a critic's head may be added.

    Args:
        architecture: sizes.
        vision: makes the vision towers of them.
    """

    value_head: ValueHead | None

    def __init__(
        self,
        architecture: Architecture,
        vision: Callable[[Architecture], nn.Module] = VisionBackbone,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.vision_backbone = vision(architecture)
        self.projector = Projector(architecture.features, architecture.hidden)
        self.language_model = make_llama(architecture.text)
        self.value_head = None
        self.recompute = False  # of the language model's layers, in the backward pass

    def add_value_head(self, outputs: int = 1) -> None:
        """Add a critic of this many outputs, with initial weights."""
        head = ValueHead(self.architecture.hidden, outputs)
        self.value_head = head.to(self.device, self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights."""
        return self.projector.fc1.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.projector.fc1.weight.device

    def see(self, pixels: Tensor, *context: Tensor) -> Tensor:
        """Return what the language model reads of K images, [B, K patches, D].

        Args:
            pixels: [B, 6 K, H, W], normalised for each tower.
            context: what the blocks of the towers are given besides, if anything.
        """
        tokens: Tensor = self.projector(self.vision_backbone(pixels.to(self.dtype), *context))
        return tokens

    def words(self, ids: Tensor) -> Tensor:
        """Return the embeddings [B, L, D] of token ids [B, L]."""
        embedded: Tensor = self.language_model.model.embed_tokens(ids)
        return embedded

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [..., V] of hidden states [..., D]."""
        logits: Tensor = self.language_model.lm_head(hidden)
        return logits

    def values(self, hidden: Tensor) -> Tensor | None:
        """Return float32 values [B, outputs] of hidden states [B, D]; None without a critic."""
        return None if self.value_head is None else self.value_head(hidden)

    # --- one sequence ----------------------------------------------------------------------------

    def read(
        self, ids: Tensor, mask: Tensor, seen: Tensor, memory: KeyValues | None = None
    ) -> Tensor:
        """Return hidden states [B, patches + L, D] of a prompt, after the final norm.

        Args:
            ids: int64 [B, L], ``[BOS][padding][text]``, with action tokens behind or not.
            mask: bool [B, L], false at padding.
            seen: [B, patches, D], from :meth:`see`.
            memory: takes keys and values, for :meth:`step`.
        """
        words = self.words(ids)
        sequence = torch.cat([words[:, :1], seen, words[:, 1:]], dim=1)
        valid = with_patches(mask, seen.shape[1])
        return self.run(sequence, causal(valid), positions_of(valid), memory)

    def step(self, ids: Tensor, valid: Tensor, memory: KeyValues) -> Tensor:
        """Return hidden states [B, 1, D] of one more token.

        Args:
            ids: int64 [B, 1].
            valid: bool [B, T + 1], of all positions, this one included.
            memory: keys and values of the T before it.
        """
        position = positions_of(valid)[:, -1:]
        return self.run(self.words(ids), valid[:, None, None, :], position, memory)

    def run(
        self, sequence: Tensor, mask: Tensor, positions: Tensor, memory: KeyValues | None = None
    ) -> Tensor:
        """Return the language model's hidden states; see :func:`run_llama`."""
        return run_llama(self.language_model, sequence, mask, positions, memory, self.recompute)


def with_patches(mask: Tensor, patches: int) -> Tensor:
    """Return bool [B, patches + L] of a prompt's mask [B, L]: the patches stand behind BOS."""
    seen = mask.new_ones(len(mask), patches)
    return torch.cat([mask[:, :1], seen, mask[:, 1:]], dim=1)
