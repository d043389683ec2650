"""Networks of the golden sets, and tiny published checkpoints of every kind."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_openvla.architecture import Architecture
from rlinf_plugin_openvla_oft.config import OFTConfig
from rlinf_plugin_openvla_oft.network import OFTNetwork
from rlinf_plugin_openvla_oft.policy import OFTPolicy
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from rlinf_core.api import Batch, Draws, Spaces, fill, in_memory, new_folder, write_shards
from rlinf_core.testing import Golden

SIZES = [
    {"width": 64, "depth": 3, "heads": 4, "mlp": 256},
    {"width": 48, "depth": 3, "heads": 4, "mlp": 179},
]


def published(image_size: int, text: dict[str, Any], norm_stats: dict[str, Any]) -> dict[str, Any]:
    """Return what is read of a published ``config.json``, of a small network."""
    return {
        "image_resize_strategy": "resize-naive",
        "image_sizes": [image_size, image_size],
        "model_type": "openvla",
        "n_action_bins": 256,
        "norm_stats": norm_stats,
        "pad_to_multiple_of": 64,
        "pad_token_id": 32000,
        "text_config": text,
        "timm_model_ids": [
            "vit_large_patch14_reg4_dinov2.lvd142m",
            "vit_so400m_patch14_siglip_224",
        ],
        "tower_sizes": SIZES,
        "use_fused_vision_backbone": True,
    }


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    return lambda name: Golden(Path(__file__).parent / "goldens", name)


@pytest.fixture(scope="session")
def make_network() -> Callable[..., OFTNetwork]:
    """Return a function that makes the network of a golden set, with the set's weights."""

    def make(found: Golden, values: int = 0, **options: Any) -> OFTNetwork:
        config = found.spec["config"]
        text, size = config["text_config"], config["vision"]["image_size"]
        network = OFTNetwork(Architecture.of(published(size, text, {})), **options)
        given = found.weights()
        if values:
            network.add_value_head(values)
        for part in found.spec.get("components", {}):
            given |= {f"{part}.{name}": t for name, t in found.weights(part).items()}
        fill(network, in_memory(given), "the set")
        return network.eval().requires_grad_(False)

    return make


# --- tiny checkpoints -----------------------------------------------------------------------------

WORDS = "In : What action should the robot take to ? Out : pick up put open red blue bowl drawer"
STATISTICS = {
    "action": {"q01": [-0.5, -0.25, 0.0], "q99": [0.5, 0.75, 1.0], "mask": [True, True, False]},
    "proprio": {"q01": [-1.0, 0.0, -2.0, 0.0, 1.0], "q99": [1.0, 3.0, 2.0, 1.0, 4.0]},
}
TINY = {"dtype": "float32", "prompt_suffix_ids": (5,), "prompt_length": 24}
WHOLE = {"film": True, "proprio": True, "head": "l1", "stop_token": True}


def tokenizer() -> Tokenizer:
    """Return one that knows a few words, and puts BOS in front as Llama's does."""
    words = ["<unk>", "<s>", "</s>", *dict.fromkeys(WORDS.split(" "))]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return made


def write_tiny(folder: Path) -> None:
    """Write everything of a published checkpoint but its weights."""
    text = {
        "vocab_size": 384,
        "pad_token_id": 320,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = published(28, text, {"toy": STATISTICS})
    config["pad_token_id"] = 320
    config["tower_sizes"] = [
        {"width": 16, "depth": 2, "heads": 2, "mlp": 24},
        {"width": 8, "depth": 2, "heads": 2, "mlp": 20},
    ]
    (folder / "config.json").write_text(json.dumps(config))
    norms = [{"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}] * 2
    (folder / "preprocessor_config.json").write_text(json.dumps({"tvf_normalize_params": norms}))
    tokenizer().save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """Return a tiny checkpoint of every part: weights, and three files beside them.

    As published: the weights hold towers without FiLM, and names beside them begin with module.
    """
    parent = tmp_path_factory.mktemp("published")
    bare = parent / "bare"
    bare.mkdir()
    write_tiny(bare)

    def make(**options: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        given = {"checkpoint": str(bare), "weights": "random", "value_head": False, **TINY}
        config = OFTConfig(**given, trained_chunk=2, **options)
        return {n: t.bfloat16() for n, t in OFTPolicy(config, spaces(), 2).state_dict().items()}

    plain, whole = make(stop_token=True), make(**WHOLE)
    with new_folder(parent / "oft") as folder:
        write_tiny(folder)
        write_shards(folder, plain, most=40_000)
        for part, wrapped in (
            ("action_head", ""),
            ("proprio_projector", "module."),
            ("vision_backbone", ""),
        ):
            kept = OrderedDict(
                (wrapped + name.removeprefix(f"{part}."), tensor)
                for name, tensor in whole.items()
                if name.startswith(f"{part}.")
            )
            torch.save(kept, folder / f"{part}--150000_checkpoint.pt")
    return parent / "oft"


def spaces(action: int = 3, state: int = 5, cameras: tuple[str, ...] = ("front",)) -> Spaces:
    """Return what a simulator with small pictures shows and takes."""
    picture = gym.Box(0, 255, (20, 24, 3), np.uint8)
    shown: dict[str, Any] = {"images": gym.Dict(dict.fromkeys(cameras, picture))}
    if state:
        shown["state"] = gym.Box(-np.inf, np.inf, (state,), np.float32)
    return Spaces(gym.Dict(shown), gym.Box(-1.0, 1.0, (action,), np.float32))


TASKS = ("pick up the red bowl", "open drawer", "put the blue bowl to the robot drawer")


def observation(rows: int, cameras: tuple[str, ...] = ("front",)) -> Batch:
    """Return pictures, states and instructions of different lengths."""
    generator = torch.Generator().manual_seed(1)
    shape = (rows, 20, 24, 3)
    pictures = {
        name: torch.randint(0, 256, shape, generator=generator).to(torch.uint8) for name in cameras
    }
    return Batch(
        {
            "images": pictures,
            "state": torch.randn(rows, 5, generator=generator),
            "task": [TASKS[i % 3] for i in range(rows)],
        }
    )


@pytest.fixture
def make_policy(tiny) -> Callable[..., OFTPolicy]:
    def make(chunk: int = 2, **options: Any) -> OFTPolicy:
        torch.manual_seed(0)
        given = {"checkpoint": str(tiny), "trained_chunk": chunk, "stop_token": False}
        config = OFTConfig(**{**given, **TINY, **options})
        cameras = options.get("cameras") or ("front",)
        return OFTPolicy(config, spaces(cameras=cameras), chunk).eval()

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
