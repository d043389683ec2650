"""Spaces of a small simulator, and a policy for it whose weights are not the initial ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.policy import MLPPolicy

from rlinf_core.api import Batch, Draws, Spaces

S, A, C = 5, 3, 2


def box(low: object, high: object, width: int) -> gym.Box:
    shape = (width,)
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    return gym.Box(low.astype(np.float32), high.astype(np.float32))


@pytest.fixture
def make_spaces() -> Callable[..., Spaces]:
    def make(low: object = -1.0, high: object = 1.0, state: int = S, action: int = A) -> Spaces:
        return Spaces(gym.Dict({"state": box(-np.inf, np.inf, state)}), box(low, high, action))

    return make


@pytest.fixture
def make_policy(make_spaces: Callable[..., Spaces]) -> Callable[..., MLPPolicy]:
    def make(spaces: Spaces | None = None, chunk: int = C, seed: int = 0, **options: object):
        torch.manual_seed(seed)
        policy = MLPPolicy(MLPConfig(**options), spaces or make_spaces(), chunk)
        with torch.no_grad():  # as after training: the heads say something
            for parameter in policy.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return policy

    return make


@pytest.fixture
def observe() -> Callable[..., Batch]:
    def observe(rows: int, seed: int = 1) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        return Batch({"state": 3 * torch.randn(rows, S, generator=generator) + 1})

    return observe


@pytest.fixture
def draws() -> Callable[..., Draws]:
    return lambda rows: Draws(seed=0, ids=range(rows), steps=[4] * rows)
