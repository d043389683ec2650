"""Small rollouts of whole groups with uneven episodes, and a policy to score them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.policy import MLPPolicy

from rlinf_core.api import Batch, Counts, Draws, Mode, Spaces

S, A, C = 3, 2, 3


@pytest.fixture
def make_policy() -> Callable[..., MLPPolicy]:
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
def make_rollout(make_policy: Callable[..., MLPPolicy]) -> Callable[..., Batch]:
    """Return a function that acts for T steps in N environments; each episode ends at random.

    After its end an environment waits: its steps are not executed.
    """

    def make(steps: int = 4, envs: int = 8, chunk: int = C) -> Batch:
        policy = make_policy(chunk)
        generator = torch.Generator().manual_seed(5)
        rows = []
        for t in range(steps):
            obs = Batch({"state": torch.randn(envs, S, generator=generator)})
            act = policy.act(obs, Draws(0, range(envs), [t] * envs), Mode.SAMPLE)
            rows.append(Batch({"obs": obs, "replay": act.replay, "logp": act.logp}))
        length = torch.randint(1, steps * chunk + 4, (1, envs, 1), generator=generator)
        number = torch.arange(steps * chunk).reshape(steps, 1, chunk)
        valid = number < length  # [T, N, C]
        return Batch.stack(rows).with_entries(
            valid=valid,
            reward=torch.randn(steps, envs, chunk, generator=generator),
            terminated=(number == length - 1) & valid,
            truncated=torch.zeros_like(valid),
            env=torch.arange(envs).expand(steps, envs),
        )

    return make


@pytest.fixture
def count() -> Callable[[Batch], Counts]:
    """Return a function that counts a minibatch of which this is the whole."""

    def count(rows: Batch) -> Counts:
        chunks = rows["valid"].any(dim=-1).sum()
        return Counts(steps=rows["valid"].sum(), rows=chunks, groups=chunks)

    return count
