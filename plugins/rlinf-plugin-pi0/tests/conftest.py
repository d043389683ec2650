"""Tiny models: those of the golden sets, and one of a few thousand parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config

from rlinf_core.api import Batch, Spaces
from rlinf_core.testing import Golden

GOLDENS = Path(__file__).parent / "goldens"
VISION = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp": "intermediate_size",
}
GEMMA = {
    "width": "width",
    "depth": "depth",
    "mlp": "mlp_dim",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "head_dim": "head_dim",
}


@pytest.fixture
def golden() -> Callable[[str], Golden]:
    return lambda name: Golden(GOLDENS, name)


@pytest.fixture
def configured() -> Callable[..., Pi0Config]:
    """Return the configuration of a golden set's model."""

    def make(found: Golden, **options: Any) -> Pi0Config:
        about = found.spec["config"]

        def sizes(part: str, names: dict[str, str]) -> dict[str, int]:
            return {option: about[part][name] for option, name in names.items()}

        kind = Pi05Config if about["pi05"] else Pi0Config
        return kind(
            vocabulary=about["vocab_size"],
            action_dim=about["action_dim"],
            horizon=about["action_horizon"],
            vision=sizes("vision", VISION),
            vlm=sizes("vlm", GEMMA),
            expert=sizes("expert", GEMMA),
            **options,
        )

    return make


S, A = 5, 3
SMALL = {"depth": 2, "heads": 2, "kv_heads": 1, "head_dim": 8}
TINY = {
    "vocabulary": 300,
    "horizon": 4,
    "action_dim": 8,
    "max_tokens": 40,
    "vision": {"image_size": 28, "patch_size": 14, "width": 16, "depth": 1, "heads": 2, "mlp": 32},
    "vlm": {"width": 32, "mlp": 64, **SMALL},
    "expert": {"width": 16, "mlp": 32, **SMALL},
    "value_hidden": (16,),
    "cameras": ("base", "wrist"),
}
"""Options of a model of a few thousand parameters."""


@pytest.fixture
def tiny() -> dict[str, Any]:
    return dict(TINY)


def make_spaces(
    cameras: Sequence[str] = ("base", "wrist"),
    side: int = 24,
    state: int = S,
    action: int = A,
    low: float = -1.0,
    high: float = 1.0,
) -> Spaces:
    image = gym.Box(0, 255, (side, side, 3), np.uint8)
    shown = {
        "images": gym.Dict(dict.fromkeys(cameras, image)),
        "state": gym.Box(-np.inf, np.inf, (state,), np.float32),
        "task": gym.Text(100),
    }
    return Spaces(gym.Dict(shown), gym.Box(low, high, (action,), np.float32))


def make_observation(rows: int, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def images() -> torch.Tensor:
        return torch.randint(0, 256, (rows, 24, 24, 3), generator=generator, dtype=torch.uint8)

    return Batch(
        {
            "images": {"base": images(), "wrist": images()},
            "state": torch.randn(rows, S, generator=generator),
            "task": [f"push the {'very ' * (i % 2)}red_block" for i in range(rows)],
        }
    )


@pytest.fixture
def spaces() -> Callable[..., Spaces]:
    return make_spaces


@pytest.fixture
def observe() -> Callable[..., Batch]:
    return make_observation


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
