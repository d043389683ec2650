"""PPO learns: a task of one step whose best action depends on the state."""

from __future__ import annotations

import torch
from rlinf_plugin_ppo.config import PPOConfig
from rlinf_plugin_ppo.ppo import PPO
from rlinf_plugin_torch.backend import TorchBackend
from rlinf_plugin_torch.config import TorchConfig

from rlinf_core.api import Batch, Counts, Draws, Mode

ENVS = 128


def play(policy, iteration: int, mode: Mode = Mode.SAMPLE) -> Batch:
    """Return one row per environment; the reward is minus the squared distance to a target."""
    generator = torch.Generator().manual_seed(iteration)
    obs = Batch({"state": torch.rand(ENVS, 3, generator=generator) * 2 - 1})
    draws = Draws(0, range(ENVS), [iteration] * ENVS) if mode is Mode.SAMPLE else None
    act = policy.act(obs, draws, mode)
    target = torch.stack([0.7 * obs["state"][:, 0], -0.5 * torch.ones(ENVS)], dim=1)  # [N, A]
    reward = -(act.actions[:, 0] - target).square().sum(dim=1)  # [N]
    yes = torch.ones(1, ENVS, 1, dtype=torch.bool)
    rows = Batch({"obs": obs, "replay": act.replay, "logp": act.logp, "value": act.value})
    return Batch.stack([rows]).with_entries(
        reward=reward.reshape(1, ENVS, 1),
        terminated=yes,
        truncated=~yes,
        valid=yes,
        next_value=torch.zeros(1, ENVS),
    )


def test_ppo_learns_where_to_act(make_policy):
    ppo = PPO(PPOConfig(entropy_coefficient=1e-3))
    backend = TorchBackend(TorchConfig(learning_rate=1e-2))
    backend.build(lambda: make_policy(chunk=1))
    before = float(play(backend.policy, 999, Mode.GREEDY)["reward"].mean())
    order, errors = torch.Generator().manual_seed(0), []
    for iteration in range(40):
        batch = ppo.advantages(play(backend.policy, iteration), backend.reduce)
        errors.append(float((batch["value"] - batch["return"]).square().mean()))
        rows = batch.flatten()
        for _ in range(4):
            for part in torch.randperm(ENVS, generator=order).split(64):
                minibatch = rows.rows(part)
                n = minibatch["mask"].sum()
                counts = Counts(steps=n, rows=n, groups=n)
                backend.update(
                    minibatch.split(32), lambda m, e, counts=counts: ppo.loss(m, e, counts)
                )
        backend.policy.observe(batch["obs"], batch["mask"], backend.reduce)
        backend.advance()
    after = float(play(backend.policy, 999, Mode.GREEDY)["reward"].mean())
    assert before < -0.5
    assert after > -0.03
    assert errors[-1] < 0.05 * errors[0]
