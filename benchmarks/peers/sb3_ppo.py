"""PPO of stable-baselines3 on a task: ``python -m benchmarks.peers.sb3_ppo TASK STEPS SEED JSON``.

Environments run in forked processes (``SubprocVecEnv``), one each, observations and rewards are
normalised (``VecNormalize``), on the CPU with one thread.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

from benchmarks.peers.record import Record
from benchmarks.peers.tasks import TASKS


class Recorder(BaseCallback):
    """Tells the record of episodes, and of rollouts once they have been learned from."""

    def __init__(self) -> None:
        super().__init__()

    def _on_training_start(self) -> None:
        self.record = Record()
        self.once = [False] * self.training_env.num_envs

    def _on_rollout_start(self) -> None:  # also comes after each update
        if self.num_timesteps:
            self.record.rollout(self.num_timesteps)

    def _on_step(self) -> bool:
        infos, dones = self.locals["infos"], self.locals["dones"]
        for i, (info, done) in enumerate(zip(infos, dones, strict=True)):
            self.once[i] |= bool(info["success"])
            if done:
                self.record.episode(self.once[i])
                self.once[i] = False
        return True

    def _on_training_end(self) -> None:
        self.record.rollout(self.num_timesteps)


def make_agent(task: str, seed: int, options: dict[str, Any]) -> PPO:
    """Return the agent with its environments."""
    torch.set_num_threads(1)
    envs = SubprocVecEnv([functools.partial(TASKS[task])] * options["envs"], start_method="fork")
    envs = VecNormalize(envs, gamma=options["gamma"])
    return PPO(
        "MlpPolicy",
        envs,
        n_steps=options["steps"],
        batch_size=options["minibatch"],
        n_epochs=options["epochs"],
        gamma=options["gamma"],
        gae_lambda=options["gae_lambda"],
        learning_rate=options["learning_rate"],
        clip_range=options["clip_ratio"],
        ent_coef=0.0,
        vf_coef=options["value_coefficient"],
        max_grad_norm=options["max_grad_norm"],
        policy_kwargs={"net_arch": options["hidden"], "log_std_init": options["log_std_init"]},
        seed=seed,
        device="cpu",
    )


def main() -> None:
    """Train, and print the record."""
    task, steps, seed, options = sys.argv[1:]
    agent = make_agent(task, int(seed), json.loads(options))
    recorder = Recorder()
    agent.learn(int(steps), callback=recorder)
    agent.get_env().close()
    recorder.record.tell()


if __name__ == "__main__":
    main()
