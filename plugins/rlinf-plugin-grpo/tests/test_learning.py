"""GRPO learns: a task of one step whose best action depends on the state, without a critic."""

from __future__ import annotations

import torch
from rlinf_plugin_grpo.config import GRPOConfig
from rlinf_plugin_grpo.grpo import GRPO
from rlinf_plugin_torch.backend import TorchBackend
from rlinf_plugin_torch.config import TorchConfig

from rlinf_core.api import Batch, Counts, Draws, Mode

ENVS, GROUP = 128, 8


def play(policy, iteration: int, mode: Mode = Mode.SAMPLE) -> Batch:
    """Return one row per environment; a group has one state, and how hard it is differs."""
    generator = torch.Generator().manual_seed(iteration)
    state = (torch.rand(ENVS // GROUP, 3, generator=generator) * 2 - 1).repeat_interleave(GROUP, 0)
    draws = Draws(0, range(ENVS), [iteration] * ENVS) if mode is Mode.SAMPLE else None
    act = policy.act(Batch({"state": state}), draws, mode)
    target = torch.stack([0.7 * state[:, 0], -0.5 * torch.ones(ENVS)], dim=1)  # [N, A]
    missed = (act.actions[:, 0] - target).square().sum(dim=1)  # [N]
    yes = torch.ones(1, ENVS, 1, dtype=torch.bool)
    rows = Batch({"replay": act.replay, "logp": act.logp, "env": torch.arange(ENVS)})
    return Batch.stack([rows]).with_entries(
        reward=(100 * state[:, 1] - missed).reshape(1, ENVS, 1),
        terminated=yes,
        truncated=~yes,
        valid=yes,
        missed=missed.unsqueeze(0),
    )


def test_grpo_learns_where_to_act(make_policy):
    grpo = GRPO(GRPOConfig(group_size=GROUP))
    backend = TorchBackend(TorchConfig(learning_rate=1e-2))
    backend.build(lambda: make_policy(chunk=1))
    before = float(play(backend.policy, 999, Mode.GREEDY)["missed"].mean())
    order = torch.Generator().manual_seed(0)
    for iteration in range(40):
        rows = grpo.advantages(play(backend.policy, iteration), backend.reduce).flatten()
        for _ in range(4):
            for part in torch.randperm(ENVS, generator=order).split(64):
                minibatch = rows.rows(part)
                n = minibatch["mask"].sum()
                counts = Counts(steps=n, rows=n, groups=n)
                backend.update(
                    minibatch.split(32), lambda m, e, counts=counts: grpo.loss(m, e, counts)
                )
        backend.advance()
    after = float(play(backend.policy, 999, Mode.GREEDY)["missed"].mean())
    assert before > 0.5
    assert after < 0.03
