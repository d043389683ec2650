"""SigLIP as PaliGemma uses it: tanh GELU, a last layer norm, no pooling.

It is put together from transformers' parts, whose names of tensors do not change with its version;
those of its whole vision model do.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipEncoder, SiglipVisionEmbeddings

from rlinf_plugin_pi0.config import VisionSizes

EPSILON = 1e-6
ACTIVATION = "gelu_pytorch_tanh"


class VisionTower(nn.Module):
    """Turns images into features of patches.

    Args:
        sizes: image and patch size, width, depth and so on.
    """

    def __init__(self, sizes: VisionSizes) -> None:
        super().__init__()
        config = SiglipVisionConfig(
            hidden_size=sizes.width,
            intermediate_size=sizes.mlp,
            num_hidden_layers=sizes.depth,
            num_attention_heads=sizes.heads,
            image_size=sizes.image_size,
            patch_size=sizes.patch_size,
            hidden_act=ACTIVATION,
            layer_norm_eps=EPSILON,
        )
        config._attn_implementation = "sdpa"
        self.embeddings = SiglipVisionEmbeddings(config)
        self.encoder = SiglipEncoder(config)
        self.post_layernorm = nn.LayerNorm(sizes.width, eps=EPSILON)

    def forward(self, images: Tensor) -> Tensor:
        """Return [B, patches, width] of images [B, 3, S, S] in [-1, 1]."""
        x = self.embeddings(images).to(self.post_layernorm.weight.dtype)
        return self.post_layernorm(self.encoder(inputs_embeds=x).last_hidden_state)
