"""PPO in a single file: ``python -m benchmarks.peers.single_file_ppo TASK STEPS SEED JSON``.

How a careful person writes PPO for continuous actions when it is all there is to write: Gymnasium's
``AsyncVectorEnv`` in forked processes with shared memory, vectorised normalisation of observations
and rewards, preallocated tensors, one loop.
"""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from benchmarks.peers.record import Record
from benchmarks.peers.tasks import TASKS


class Moments:
    """Running mean and variance of the rows seen so far."""

    def __init__(self, *shape: int) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, rows: np.ndarray) -> None:
        mean, var, count = rows.mean(axis=0), rows.var(axis=0), len(rows)
        delta, total = mean - self.mean, self.count + count
        m2 = self.var * self.count + var * count + delta**2 * self.count * count / total
        self.mean, self.var, self.count = self.mean + delta * count / total, m2 / total, total

    def scale(self, rows: np.ndarray) -> np.ndarray:
        return ((rows - self.mean) / np.sqrt(self.var + 1e-8)).clip(-10, 10)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return an orthogonally initialised layer."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """A Gaussian actor and a critic."""

    def __init__(self, inputs: int, actions: int, hidden: list[int], log_std: float) -> None:
        super().__init__()

        def body(outputs: int, gain: float) -> nn.Sequential:
            parts: list[nn.Module] = []
            for a, b in zip([inputs, *hidden[:-1]], hidden, strict=True):
                parts += [layer(a, b), nn.Tanh()]
            return nn.Sequential(*parts, layer(hidden[-1], outputs, gain))

        self.actor, self.critic = body(actions, 0.01), body(1, 1.0)
        self.log_std = nn.Parameter(torch.full((actions,), log_std))

    def logp(self, mean: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        scaled = (action - mean) / self.log_std.exp()
        return (-0.5 * scaled**2 - self.log_std - 0.9189385332046727).sum(-1)


def main() -> None:
    """Train, and print the record."""
    task, total, seed, options = sys.argv[1:]
    o = json.loads(options)
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    rng = np.random.default_rng(int(seed))
    envs = gym.vector.AsyncVectorEnv(
        [TASKS[task]] * o["envs"],
        context="fork",
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    n, steps = o["envs"], o["steps"]
    inputs, actions = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    low, high = envs.single_action_space.low, envs.single_action_space.high
    agent = Agent(inputs, actions, o["hidden"], o["log_std_init"])
    optimizer = torch.optim.Adam(agent.parameters(), lr=o["learning_rate"], eps=1e-5, fused=True)
    seen, earned, ret = Moments(inputs), Moments(), np.zeros(n)
    obs = torch.zeros(steps, n, inputs)
    acts = torch.zeros(steps, n, actions)
    logps, values = torch.zeros(steps, n), torch.zeros(steps, n)
    rewards, dones = np.zeros((steps, n), np.float32), np.zeros((steps, n), np.float32)
    raw, _ = envs.reset(seed=[int(seed) * 1000 + i for i in range(n)])
    record, once = Record(), np.zeros(n, bool)

    for step in range(steps * n, int(total) + 1, steps * n):
        with torch.no_grad():
            for t in range(steps):
                seen.update(raw)
                obs[t] = torch.from_numpy(seen.scale(raw))
                mean = agent.actor(obs[t])
                acts[t] = mean + agent.log_std.exp() * torch.randn(n, actions)
                logps[t] = agent.logp(mean, acts[t])
                values[t] = agent.critic(obs[t]).squeeze(-1)
                raw, reward, terminated, truncated, info = envs.step(
                    acts[t].numpy().clip(low, high)
                )
                done = terminated | truncated
                ret = ret * o["gamma"] + reward
                earned.update(ret)
                rewards[t] = (reward / np.sqrt(earned.var + 1e-8)).clip(-10, 10)
                success = np.asarray(info.get("success", np.zeros(n)), bool)
                if done.any():  # a time limit bootstraps from the old episode's last observation
                    success = success | np.asarray(info["final_info"]["success"], bool)
                    for i in done.nonzero()[0]:
                        if not terminated[i]:
                            last = torch.from_numpy(seen.scale(info["final_obs"][i])).float()
                            rewards[t, i] += o["gamma"] * agent.critic(last).item()
                once |= success
                for i in done.nonzero()[0]:
                    record.episode(bool(once[i]))
                once &= ~done
                ret *= ~done
                dones[t] = done
            behind = agent.critic(torch.from_numpy(seen.scale(raw)).float()).squeeze(-1).numpy()
        known, advantage, ahead = values.numpy(), np.zeros((steps, n), np.float32), 0.0
        for t in reversed(range(steps)):
            following = known[t + 1] if t + 1 < steps else behind
            delta = rewards[t] + o["gamma"] * following * (1 - dones[t]) - known[t]
            ahead = delta + o["gamma"] * o["gae_lambda"] * (1 - dones[t]) * ahead
            advantage[t] = ahead
        flat = {
            "obs": obs.reshape(-1, inputs),
            "act": acts.reshape(-1, actions),
            "logp": logps.reshape(-1),
            "adv": torch.from_numpy(advantage).reshape(-1),
            "ret": torch.from_numpy(advantage + known).reshape(-1),
        }
        for _ in range(o["epochs"]):
            order = torch.from_numpy(rng.permutation(steps * n))
            for rows in order.split(o["minibatch"]):
                b = {name: tensor[rows] for name, tensor in flat.items()}
                adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
                ratio = (agent.logp(agent.actor(b["obs"]), b["act"]) - b["logp"]).exp()
                clipped = ratio.clamp(1 - o["clip_ratio"], 1 + o["clip_ratio"])
                policy_loss = torch.max(-adv * ratio, -adv * clipped).mean()
                value_loss = 0.5 * (agent.critic(b["obs"]).squeeze(-1) - b["ret"]).square().mean()
                loss = policy_loss + o["value_coefficient"] * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), o["max_grad_norm"])
                optimizer.step()
        record.rollout(step)
    envs.close()
    record.tell()


if __name__ == "__main__":
    main()
