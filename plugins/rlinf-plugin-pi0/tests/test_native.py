"""A second implementation: transformers' own pi0 reads the file that is written here and agrees."""

from __future__ import annotations

import itertools

import pytest
import torch
from rlinf_plugin_pi0 import flow
from rlinf_plugin_pi0.checkpoint import EMBEDDING, TIED
from rlinf_plugin_pi0.model import PiModel
from safetensors.torch import save_file

pytestmark = pytest.mark.usefixtures("no_gradients")
IMAGE = 1024  # the id that stands for a patch there: one more than the last token


def native_config(native, config):
    vision, vlm, expert = config.vision, config.vlm, config.expert

    def gemma(sizes):
        return {
            "model_type": "gemma",
            "hidden_size": sizes.width,
            "num_hidden_layers": sizes.depth,
            "intermediate_size": sizes.mlp,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "head_dim": sizes.head_dim,
            "vocab_size": config.vocabulary,
        }

    return native.PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": gemma(vlm),
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": vision.width,
                "intermediate_size": vision.mlp,
                "patch_size": vision.patch_size,
                "image_size": vision.image_size,
                "num_hidden_layers": vision.depth,
                "num_attention_heads": vision.heads,
                "vision_use_head": False,
            },
            "projection_dim": vlm.width,
            "image_token_id": IMAGE,
        },
        dit_config=gemma(expert),
        chunk_size=config.horizon,
        max_state_dim=config.action_dim,
        max_action_dim=config.action_dim,
    )


def test_transformers_own_pi0_denoises_to_the_same_actions(golden, configured, tmp_path):
    native = pytest.importorskip("transformers.models.pi0.modeling_pi0")
    found = golden("pi0-sample")
    config = configured(found)
    torch.manual_seed(0)
    own = PiModel(config, adaptive=False).eval()
    tensors = {k: v for k, v in found.weights().items() if "gemma_expert.lm_head" not in k}
    own.load_state_dict({k: v for k, v in tensors.items() if k != TIED})
    del tensors[EMBEDDING]  # as openpi publishes it: under the lm_head's name alone
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    other = native.PI0ForConditionalGeneration.from_pretrained(
        tmp_path, config=native_config(native, config), attn_implementation="eager"
    ).eval()

    images = found["images"].transpose(0, 1)  # [2, 3, 3, 28, 28]
    there = torch.ones(2, 3, dtype=torch.bool)
    tokens, mask = found["tokens"], found["token_mask"]
    prefix = own.prefix(images, there, tokens, mask)
    x, times = found["noise"], flow.timesteps(10)
    for now, then in itertools.pairwise(times):
        x = x + (then - now) * own.velocity(prefix, found["state"], x, now.expand(2))

    patches = torch.full((2, 3 * config.vision.patches), IMAGE)
    actions = other.sample_actions(
        state=found["state"],
        input_ids=torch.cat([patches, tokens], dim=1),
        pixel_values=images,
        noise=found["noise"],
        attention_mask=torch.cat([torch.ones_like(patches), mask.long()], dim=1),
        pixel_attention_mask=there,
        num_steps=10,
    )
    torch.testing.assert_close(actions, x, rtol=0, atol=2e-4)
