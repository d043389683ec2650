"""A vision transformer under timm's names (Dosovitskiy et al., arXiv 2010.11929), and both of them.

GELU is exact, norms have an epsilon of 1e-6. What is read are the patches of the second-to-last
block, without the final norm; the last block, the norm and the pool are there because checkpoints
hold them. timm itself would bring torchvision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlinf_plugin_openvla.architecture import Architecture, Tower


class PatchEmbed(nn.Module):
    """Cuts an image into patches."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, tower.width, tower.patch, stride=tower.patch)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return [B, patches, width] of [B, 3, H, W]."""
        patches: Tensor = self.proj(pixels).flatten(2).transpose(1, 2)
        return patches


class Attention(nn.Module):
    """Attention of every patch to every other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, T, width] of the same."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv)  # [B, heads, T, width / heads]
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """Two layers with an exact GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., width] of the same."""
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """A factor for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_factor = nn.Parameter(torch.full((width,), 1e-5))

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., width] of the same."""
        return x * self.scale_factor


class Block(nn.Module):
    """Attention, then MLP, each added to what it read."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        width, scaled = tower.width, tower.layer_scale
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, tower.heads)
        self.ls1 = LayerScale(width) if scaled else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLP(width, tower.mlp)
        self.ls2 = LayerScale(width) if scaled else nn.Identity()

    def forward(self, x: Tensor, between: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return [B, T, width] of the same; ``between`` changes what the attention leaves."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        if between is not None:
            x = between(x)
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out


class AttentionPool(nn.Module):
    """SigLIP's pool: only its weights, for nothing here reads it."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        width = tower.width
        self.latent = nn.Parameter(torch.zeros(1, 1, width))
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.proj, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLP(width, tower.mlp)


class VisionTransformer(nn.Module):
    """One tower.

    Args:
        tower: its sizes.
        patches: number of patches of an image.
    """

    def __init__(self, tower: Tower, patches: int) -> None:
        super().__init__()
        width = tower.width
        if tower.class_token:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        if tower.registers:
            self.reg_token = nn.Parameter(torch.zeros(1, tower.registers, width))
        self.prefix = [n for n in ("cls_token", "reg_token") if n in dict(self.named_parameters())]
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, patches, width))
        self.patch_embed = PatchEmbed(tower)
        self.blocks = nn.ModuleList(Block(tower) for _ in range(tower.depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        if tower.pooling:
            self.attn_pool = AttentionPool(tower)

    def forward(self, pixels: Tensor, *context: Tensor) -> Tensor:
        """Return the features of the patches.

        Args:
            pixels: [B, 3, H, W], normalised.
            context: what every block is given besides, if anything.

        Returns:
            [B, patches, width].
        """
        patches = self.patch_embed(pixels) + self.pos_embed
        prefix = [getattr(self, name).expand(len(patches), -1, -1) for name in self.prefix]
        x = torch.cat([*prefix, patches], dim=1)
        for block in list(self.blocks)[:-1]:
            x = block(x, *context)
        return x[:, x.shape[1] - patches.shape[1] :]


class VisionBackbone(nn.Module):
    """Both towers, their features side by side, for any number of images.

    Args:
        architecture: of the checkpoint.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.featurizer, self.fused_featurizer = (
            VisionTransformer(tower, architecture.patches(tower)) for tower in architecture.towers
        )

    def forward(self, pixels: Tensor, *context: Any) -> Tensor:
        """Return the features of K images, one after the other.

        Args:
            pixels: [B, 6 K, H, W]: for each image three channels for DINOv2, then for SigLIP.
            context: what every block is given besides, if anything.

        Returns:
            [B, K patches, features].
        """
        images = []
        for image in pixels.split(6, dim=1):
            dino, siglip = image.split(3, dim=1)
            parts = self.featurizer(dino, *context), self.fused_featurizer(siglip, *context)
            images.append(torch.cat(parts, dim=-1))
        return torch.cat(images, dim=1)
