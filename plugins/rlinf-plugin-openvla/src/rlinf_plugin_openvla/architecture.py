"""Sizes of OpenVLA, read from a checkpoint's ``config.json``, and parameters counted from them.

Imports no torch. A published file names its vision towers by their timm ids, whose sizes stand in
:data:`TOWERS`; one with other towers adds ``tower_sizes``, a list of two mappings of what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from rlinf_core.api import CheckpointError


@dataclass(frozen=True)
class Tower:
    """One vision transformer.

    Attributes:
        width: of its hidden states.
        depth: number of blocks; the last one is there, but never read.
        heads: of attention.
        mlp: width of the hidden layer in a block.
        patch: side of a patch in pixels.
        class_token: whether one stands before the patches.
        registers: number of register tokens, behind the class token.
        layer_scale: whether a block's halves are scaled.
        pooling: whether it has an attention pool, which is never read.
    """

    width: int
    depth: int
    heads: int
    mlp: int
    patch: int = 14
    class_token: bool = False
    registers: int = 0
    layer_scale: bool = False
    pooling: bool = False


TOWERS: Mapping[str, Tower] = MappingProxyType(
    {
        "vit_large_patch14_reg4_dinov2.lvd142m": Tower(
            1024, 24, 16, 4096, class_token=True, registers=4, layer_scale=True
        ),
        "vit_so400m_patch14_siglip_224": Tower(1152, 27, 16, 4304, pooling=True),
    }
)
"""Sizes by timm id."""

LLAMA: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
)
"""What transformers' LlamaConfig has where ``text_config`` says nothing."""


@dataclass(frozen=True)
class Architecture:
    """Everything that decides the network's shapes and special ids.

    Attributes:
        towers: DINOv2, then SigLIP; their features stand side by side in this order.
        image_size: side of an image in pixels.
        text: what the file says of the language model, and :data:`LLAMA` for what it leaves out.
        bins: number of action ids.
        action_end: one more than the highest action id.
        pad_id: token that fills short prompts.
    """

    towers: tuple[Tower, Tower]
    image_size: int
    text: Mapping[str, Any]
    bins: int
    action_end: int
    pad_id: int

    @staticmethod
    def of(config: Mapping[str, Any]) -> Architecture:
        """Return that of a ``config.json``.

        Raises:
            CheckpointError: it is of another kind of network, or lacks something.
        """
        wanted = {"use_fused_vision_backbone": True, "image_resize_strategy": "resize-naive"}
        if differ := {k: config.get(k) for k in wanted if config.get(k) != wanted[k]}:
            raise CheckpointError(f"config.json has {differ}; this plugin reads {wanted} only")
        try:
            ids, sizes = config["timm_model_ids"], config["image_sizes"]
            text = {**LLAMA, **config["text_config"]}
            bins, action_end = config["n_action_bins"], text["vocab_size"]
            action_end -= config["pad_to_multiple_of"]
            pad = config["pad_token_id"]
        except KeyError as error:
            raise CheckpointError(f"config.json lacks {error}; wanted OpenVLA's") from None
        more = config.get("tower_sizes", [{}, {}])
        unknown = [i for i in ids if i not in TOWERS]
        if unknown or len(ids) != 2 or len(more) != 2 or len(set(sizes)) != 1:
            raise CheckpointError(
                f"config.json has the vision towers {ids}, image sizes {sizes} and tower_sizes "
                f"{more}; wanted two of {sorted(TOWERS)}, one image size, and nothing or two "
                "mappings"
            )
        try:
            first, second = (replace(TOWERS[i], **d) for i, d in zip(ids, more, strict=True))
        except TypeError as error:
            names = [field.name for field in fields(Tower)]
            raise CheckpointError(
                f"config.json has tower_sizes {more}: {error}; wanted some of {names}"
            ) from None
        return Architecture((first, second), sizes[0], text, bins, action_end, pad)

    @property
    def hidden(self) -> int:
        """Width of the language model's hidden states."""
        return int(self.text["hidden_size"])

    @property
    def bos_id(self) -> int:
        """Token that every prompt begins with."""
        return int(self.text["bos_token_id"])

    @property
    def stop_id(self) -> int:
        """Token that ends a text."""
        return int(self.text["eos_token_id"])

    def patches(self, tower: Tower) -> int:
        """Return how many patches an image has."""
        return int((self.image_size // tower.patch) ** 2)

    @property
    def features(self) -> int:
        """Width of both towers' features side by side."""
        return sum(tower.width for tower in self.towers)

    @property
    def parameters(self) -> int:
        """Number of parameters of the published network, without a critic."""
        vision = sum(self._tower(tower) for tower in self.towers)
        f, h = self.features, self.hidden
        projector = linear(f, 4 * f) + linear(4 * f, h) + linear(h, h)
        return vision + projector + self._language()

    def _tower(self, tower: Tower) -> int:
        w, norm = tower.width, 2 * tower.width
        mlp = linear(w, tower.mlp) + linear(tower.mlp, w)
        block = 2 * norm + linear(w, 3 * w) + linear(w, w) + mlp + 2 * w * tower.layer_scale
        tokens = (tower.class_token + tower.registers + self.patches(tower)) * w
        pool = w + linear(w, w) + linear(w, 2 * w) + linear(w, w) + norm + mlp
        patch = linear(3 * tower.patch**2, w)
        return tokens + patch + tower.depth * block + norm + pool * tower.pooling

    def _language(self) -> int:
        text, h = self.text, self.hidden
        heads = text["num_attention_heads"]
        size = text.get("head_dim") or h // heads
        keys = 2 * h * size * (text.get("num_key_value_heads") or heads)
        layer = 2 * h * size * heads + keys + 3 * h * text["intermediate_size"] + 2 * h
        return int(2 * text["vocab_size"] * h + text["num_hidden_layers"] * layer + h)


def linear(inputs: int, outputs: int) -> int:
    """Return the number of parameters of a linear layer with bias."""
    return (inputs + 1) * outputs
