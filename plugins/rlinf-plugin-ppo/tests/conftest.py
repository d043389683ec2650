"""Small trajectories and minibatches with uneven masks, and a policy to score them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.policy import MLPPolicy

from rlinf_core.api import Batch, Counts, Draws, Mode, Spaces

S, A, C = 3, 2, 5


@pytest.fixture
def make_policy() -> Callable[[], MLPPolicy]:
    """Return a function that makes the same small policy every time."""

    def make(chunk: int = C) -> MLPPolicy:
        torch.manual_seed(0)
        state = gym.Box(-np.inf, np.inf, (S,), np.float32)
        action = gym.Box(-1.0, 1.0, (A,), np.float32)
        spaces = Spaces(gym.Dict({"state": state}), action)
        policy = MLPPolicy(MLPConfig(hidden=(8,)), spaces, chunk)
        torch.nn.init.normal_(policy.actor[-1].weight)  # so that log-probs move
        return policy

    return make


@pytest.fixture
def make_trajectory(make_policy: Callable[..., MLPPolicy]) -> Callable[..., Batch]:
    """Return a function that acts for T steps in N environments whose episodes end at random."""

    def make(steps: int = 4, envs: int = 3, chunk: int = C) -> Batch:
        policy = make_policy(chunk)
        generator = torch.Generator().manual_seed(5)
        rows = []
        for t in range(steps):
            obs = Batch({"state": torch.randn(envs, S, generator=generator)})
            act = policy.act(obs, Draws(0, range(envs), [t] * envs), Mode.SAMPLE)
            rows.append(Batch({"replay": act.replay, "logp": act.logp, "value": act.value}))
        batch = Batch.stack(rows)
        length = torch.randint(1, chunk + 1, (steps, envs, 1), generator=generator)
        valid = torch.arange(chunk) < length  # [T, N, C]
        last = torch.arange(chunk) == length - 1
        return batch.with_entries(
            valid=valid,
            reward=torch.randn(steps, envs, chunk, generator=generator) * valid,
            terminated=last & (length < chunk),
            truncated=torch.zeros_like(valid),
            next_value=torch.randn(steps, envs, generator=generator),
        )

    return make


@pytest.fixture
def count() -> Callable[[Batch], Counts]:
    """Return a function that counts a minibatch of which this is the whole."""

    def count(rows: Batch) -> Counts:
        chunks = rows["valid"].any(dim=-1).sum()
        return Counts(steps=rows["valid"].sum(), rows=chunks, groups=chunks)

    return count
