"""The tasks that learning is measured on: our run file, the peers' environment, what it needs.

A new task is an entry in :data:`TASKS`, a run file, and a function in ``peers/tasks.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import yaml

from benchmarks.bench import ROOT


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: of the run file in ``configs/`` and of the function in ``peers/tasks.py``.
        title: in the page.
        plugin: the distribution without which it cannot be run here.
        peers: the peers' environment, ``requirements-PEERS.txt``.
        iterations: that learners train for.
        processes: of our simulators; peers have one process per environment.
    """

    name: str
    title: str
    plugin: str
    peers: str
    iterations: int
    processes: int = 4

    def missing(self) -> str:
        """Return why it cannot be run, or ""."""
        try:
            version(self.plugin)
        except PackageNotFoundError:
            return f"{self.plugin} is not installed"
        return ""

    def options(self) -> dict[str, object]:
        """Return the hyperparameters of the run file as peers take them: one source for all."""
        path = ROOT / "benchmarks" / "configs" / f"{self.name}.yaml"
        run = yaml.safe_load(path.read_text(encoding="utf-8"))
        algorithm, training = run["algorithm"], run["training"]
        return {
            **run["collect"],  # envs, steps
            "epochs": run["update"]["epochs"],
            "minibatch": run["update"]["minibatch_size"],
            **{k: run["model"][k] for k in ("hidden", "log_std_init")},
            **{k: algorithm[k] for k in ("gamma", "gae_lambda", "clip_ratio", "value_coefficient")},
            **{k: training[k] for k in ("learning_rate", "max_grad_norm")},
        }


TASKS = (
    Task("reach", "Meta-World reach-v3", "rlinf-plugin-metaworld", "sb3", 100),
    Task("pushcube", "ManiSkill PushCube-v1", "rlinf-plugin-maniskill", "sb3-maniskill", 50),
)
