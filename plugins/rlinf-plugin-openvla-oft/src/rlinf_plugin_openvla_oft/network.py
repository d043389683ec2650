"""What OpenVLA-OFT adds to OpenVLA's network, under its published names.

A sequence is ``[BOS][patches][state][padding][prompt][actions]``, and with a stop token ``[BOS]
[patches][state][prompt][actions][stop][padding]``. The embeddings of the actions are zero. Every
token sees every other but padding, and each action is read at the position before its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from rlinf_plugin_openvla.architecture import Architecture
from rlinf_plugin_openvla.network import OpenVLANetwork, with_patches
from rlinf_plugin_openvla.vit import Block, VisionBackbone
from torch import Tensor, nn


class FiLMBlock(nn.Module):
    """A block of a tower whose middle is scaled and shifted by the instruction."""

    def __init__(self, block: Block, width: int, language: int) -> None:
        super().__init__()
        self.block = block
        self.scale = nn.Linear(language, width)
        self.shift = nn.Linear(language, width)

    def forward(self, x: Tensor, language: Tensor) -> Tensor:
        """Return [B, T, width] of the same and the mean of the instruction, [B, language]."""
        scale, shift = (layer(language)[:, None] for layer in (self.scale, self.shift))
        out: Tensor = self.block(x, lambda attended: attended * (1 + scale) + shift)
        return out


class FiLMVisionBackbone(nn.Module):
    """Vision towers of FiLM blocks."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.vision_backbone = inner = VisionBackbone(architecture)
        towers = (inner.featurizer, inner.fused_featurizer)
        for tower, sizes in zip(towers, architecture.towers, strict=True):
            tower.blocks = nn.ModuleList(
                FiLMBlock(block, sizes.width, architecture.hidden) for block in tower.blocks
            )

    def forward(self, pixels: Tensor, language: Tensor) -> Tensor:
        """Return features [B, K patches, F] of [B, 6 K, H, W] and [B, language]."""
        features: Tensor = self.vision_backbone(pixels, language)
        return features


class ProprioProjector(nn.Module):
    """Makes one token of the robot's state."""

    def __init__(self, state: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(state, hidden)
        self.fc2 = nn.Linear(hidden, hidden)

    def forward(self, state: Tensor) -> Tensor:
        """Return [B, hidden] of a normalised state [B, S]."""
        token: Tensor = self.fc2(F.gelu(self.fc1(state)))
        return token


class ResidualBlock(nn.Module):
    """A norm, a layer and a ReLU, added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., width] of the same."""
        out: Tensor = x + self.ffn(x)
        return out


class ResidualMLP(nn.Module):
    """Two residual blocks between two layers."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(inputs)
        self.fc1 = nn.Linear(inputs, hidden)
        self.mlp_resnet_blocks = nn.ModuleList(ResidualBlock(hidden) for _ in range(2))
        self.layer_norm2 = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., outputs] of [..., inputs]."""
        x = F.relu(self.fc1(self.layer_norm1(x)))
        for block in self.mlp_resnet_blocks:
            x = block(x)
        out: Tensor = self.fc2(self.layer_norm2(x))
        return out


class L1Head(nn.Module):
    """Gives normalised actions, each from the hidden states of its dimensions side by side."""

    def __init__(self, action: int, hidden: int) -> None:
        super().__init__()
        self.action = action
        self.model = ResidualMLP(action * hidden, hidden, action)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return [B, C, A] of [B, C * A, D]."""
        side_by_side = hidden.unflatten(1, (-1, self.action)).flatten(2)  # [B, C, A * D]
        actions: Tensor = self.model(side_by_side)
        return actions


class Predicted(NamedTuple):
    """What one pass gives.

    Attributes:
        hidden: [B, C * A, D], one state for each dimension of each action.
        index: int64 [B, C * A], where in the sequence each was read.
        summary: [B, D], what the critic reads.
    """

    hidden: Tensor
    index: Tensor
    summary: Tensor


class OFTNetwork(OpenVLANetwork):
    """OpenVLA's network with what OFT adds.

    Args:
        architecture: sizes.
        stop_token: whether one stands behind the actions.
        film: whether the instruction changes what the towers see.
        state: width of the robot's state; 0 where it is not read.
        action: width of an action where the L1 head gives them; else 0.
    """

    def __init__(
        self,
        architecture: Architecture,
        stop_token: bool,
        film: bool = False,
        state: int = 0,
        action: int = 0,
    ) -> None:
        super().__init__(architecture, FiLMVisionBackbone if film else VisionBackbone)
        self.film, self.stop_token = film, stop_token
        hidden = architecture.hidden
        self.proprio_projector = ProprioProjector(state, hidden) if state else None
        self.action_head = L1Head(action, hidden) if action else None

    def language(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the mean embedding [B, D] of a prompt [B, L], and of the stop token, if any."""
        mean = self.words(ids) * mask[..., None]
        total, count = mean.sum(1), mask.sum(1, keepdim=True)
        if self.stop_token:
            total, count = total + self._stop(ids)[:, 0], count + 1
        return total / count

    def predict(
        self, ids: Tensor, mask: Tensor, pixels: Tensor, count: int, state: Tensor | None = None
    ) -> Predicted:
        """Return hidden states for ``count`` dimensions of actions, all in one pass.

        Args:
            ids: int64 [B, L], ``[BOS][padding][text]``.
            mask: bool [B, L], false at padding, wherever it stands.
            pixels: [B, 6 K, H, W].
            count: C * A.
            state: normalised, [B, S], where the network reads it.
        """
        words = self.words(ids)
        seen = self.see(pixels, *([self.language(ids, mask)] if self.film else []))
        if self.proprio_projector is not None:
            token = self.proprio_projector(state.to(self.dtype))
            seen = torch.cat([seen, token[:, None]], dim=1)
        blank = words.new_zeros(len(words), count, words.shape[2])
        parts = [words[:, :1], seen, words[:, 1:], blank]
        valid = torch.cat([with_patches(mask, seen.shape[1]), mask.new_ones(len(mask), count)], 1)
        first = torch.full_like(ids[:, 0], seen.shape[1] + ids.shape[1] - 1)  # [B]
        if self.stop_token:
            parts.append(self._stop(ids))
            valid = torch.cat([valid, valid[:, :1]], dim=1)
            first = seen.shape[1] + mask.sum(1) - 1
        sequence = torch.cat(parts, dim=1)
        if self.stop_token:  # padding goes behind everything
            order = (~valid).long().argsort(dim=1, stable=True)  # [B, T]
            sequence = sequence.take_along_dim(order[..., None], dim=1)
            valid = valid.take_along_dim(order, dim=1)
        positions = torch.where(valid, valid.cumsum(dim=1) - 1, 1)
        hidden = self.run(sequence, valid[:, None, None, :], positions)
        index = first[:, None] + torch.arange(count, device=first.device)  # [B, count]
        # Before the actions without a stop token, and wherever that falls with one, as in RLinf.
        summary = hidden[:, -count - 1]
        return Predicted(hidden.take_along_dim(index[..., None], dim=1), index, summary)

    def _stop(self, ids: Tensor) -> Tensor:
        """Return the embedding of the stop token, [B, 1, D]."""
        return self.words(torch.full_like(ids[:, :1], self.architecture.stop_id))
