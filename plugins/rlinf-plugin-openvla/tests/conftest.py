"""Networks of the golden sets, and a tiny published checkpoint with a tokenizer made here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_openvla.architecture import Architecture
from rlinf_plugin_openvla.config import OpenVLAConfig
from rlinf_plugin_openvla.network import OpenVLANetwork
from rlinf_plugin_openvla.policy import OpenVLAPolicy
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from rlinf_core.api import Batch, Draws, Spaces, fill, in_memory, new_folder, write_shards
from rlinf_core.testing import Golden

TIMM = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
SIZES = [
    {"width": 64, "depth": 3, "heads": 4, "mlp": 256},
    {"width": 48, "depth": 3, "heads": 4, "mlp": 179},
]


def published(image_size: int, text: dict[str, Any], norm_stats: dict[str, Any]) -> dict[str, Any]:
    """Return a ``config.json`` as published, of a small network."""
    return {
        "architectures": ["OpenVLAForActionPrediction"],
        "arch_specifier": "no-align+fused-gelu-mlp",
        "image_resize_strategy": "resize-naive",
        "image_sizes": [image_size, image_size],
        "llm_backbone_id": "llama2-7b-pure",
        "model_type": "openvla",
        "n_action_bins": 256,
        "norm_stats": norm_stats,
        "pad_to_multiple_of": 64,
        "pad_token_id": 32000,
        "text_config": text,
        "timm_model_ids": TIMM,
        "tower_sizes": SIZES,
        "use_fused_vision_backbone": True,
        "vision_backbone_id": "dinosiglip-vit-so-224px",
    }


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    return lambda name: Golden(Path(__file__).parent / "goldens", name)


@pytest.fixture(scope="session")
def text_config(golden) -> dict[str, Any]:
    """Return the language model of the golden sets."""
    return golden("openvla-logits").spec["config"]["text_config"]


@pytest.fixture(scope="session")
def make_network(text_config) -> Callable[..., OpenVLANetwork]:
    """Return a function that makes the network of a golden set, with the set's weights."""

    def make(found: Golden) -> OpenVLANetwork:
        size = found.spec["config"]["vision"]["image_size"]
        network = OpenVLANetwork(Architecture.of(published(size, text_config, {})))
        given = found.weights()
        if any(name.startswith("value_head.") for name in given):
            network.add_value_head()
        stored = in_memory(given)
        whole = any(name.startswith("language_model.") for name in given)
        fill(
            network,
            stored,
            "the set",
            lambda name: not whole and name.startswith("language_model."),
        )
        return network.eval().requires_grad_(False)

    return make


# --- a tiny checkpoint ----------------------------------------------------------------------------

WORDS = "In : What action should the robot take to ? Out : pick up put open red blue bowl drawer \n"
ACTION, PATCHES = 3, 4
STATISTICS = {
    "q01": [-0.5, -0.25, 0.0],
    "q99": [0.5, 0.75, 1.0],
    "mask": [True, True, False],
}


def tokenizer() -> Tokenizer:
    """Return one that knows a few words, and puts BOS in front as Llama's does."""
    words = ["<unk>", "<s>", "</s>", *dict.fromkeys(WORDS.split(" "))]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return made


def write_tiny(folder: Path, **changes: Any) -> None:
    """Write everything of a published checkpoint but its weights."""
    text = {
        "model_type": "llama",
        "vocab_size": 384,
        "pad_token_id": 320,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
    }
    config = published(28, text, {"toy": {"action": STATISTICS}})
    config["pad_token_id"] = 320
    config["tower_sizes"] = [
        {"width": 16, "depth": 2, "heads": 2, "mlp": 24},
        {"width": 8, "depth": 2, "heads": 2, "mlp": 20},
    ]
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    norms = [
        {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    ]
    (folder / "preprocessor_config.json").write_text(json.dumps({"tvf_normalize_params": norms}))
    tokenizer().save(str(folder / "tokenizer.json"))


TINY = {"dtype": "float32", "prompt_suffix_ids": (5,), "prompt_length": 24}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """Return a tiny checkpoint with random weights in three files, as bfloat16."""
    parent = tmp_path_factory.mktemp("published")
    bare = parent / "bare"
    bare.mkdir()
    write_tiny(bare)
    torch.manual_seed(0)
    config = OpenVLAConfig(checkpoint=str(bare), weights="random", value_head=False, **TINY)
    policy = OpenVLAPolicy(config, spaces(), 1)
    with new_folder(parent / "openvla") as folder:
        write_tiny(folder)
        half = {name: tensor.bfloat16() for name, tensor in policy.state_dict().items()}
        write_shards(folder, half, most=40_000)
    return parent / "openvla"


def spaces(action: int = ACTION, cameras: tuple[str, ...] = ("front",)) -> Spaces:
    """Return what a simulator with small pictures shows and takes."""
    picture = gym.Box(0, 255, (20, 24, 3), np.uint8)
    shown = gym.Dict({"images": gym.Dict(dict.fromkeys(cameras, picture))})
    return Spaces(shown, gym.Box(-1.0, 1.0, (action,), np.float32))


TASKS = ("pick up the red bowl", "open drawer", "put the blue bowl to the robot drawer")


def observation(rows: int, cameras: tuple[str, ...] = ("front",)) -> Batch:
    """Return pictures and instructions of different lengths."""
    generator = torch.Generator().manual_seed(1)
    shape = (rows, 20, 24, 3)
    pictures = {
        name: torch.randint(0, 256, shape, generator=generator).to(torch.uint8) for name in cameras
    }
    return Batch({"images": pictures, "task": [TASKS[i % 3] for i in range(rows)]})


@pytest.fixture
def make_policy(tiny) -> Callable[..., OpenVLAPolicy]:
    def make(chunk: int = 1, **options: Any) -> OpenVLAPolicy:
        torch.manual_seed(0)
        given = {"checkpoint": str(tiny), "trained_chunk": chunk, **TINY, **options}
        return OpenVLAPolicy(OpenVLAConfig(**given), spaces(), chunk).eval()

    return make


@pytest.fixture
def observe() -> Callable[..., Batch]:
    return observation


@pytest.fixture
def make_spaces() -> Callable[..., Spaces]:
    return spaces


@pytest.fixture
def draws() -> Callable[..., Draws]:
    return lambda rows, first=0: Draws(seed=0, ids=range(first, first + rows), steps=[4] * rows)
