"""Learning a task end to end: environment steps per second, and what it takes to 90% success.

Every contestant trains for the same number of steps with the same hyperparameters, with one
process per environment. Ours runs twice: on its own faster task code, which is part of what a user
gets, and on exactly the environment of the peers, which compares the trainers alone.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import ours
from benchmarks.bench import Bench, Failed, best, run_json
from benchmarks.environments import python
from benchmarks.tasks import TASKS, Task

PEERS = {
    "stable-baselines3": "benchmarks.peers.sb3_ppo",
    "single-file PPO": "benchmarks.peers.single_file_ppo",
}
OURS, SAME = "rlinf", "rlinf on the peers' environment"

NOTE = (
    "Success means: the task counted as solved at any step of an episode, while exploring, over "
    "the last 50 episodes, looked at after each iteration. Seconds count from the first "
    "environment step on. The goal is missed where a seed does not reach it within the run."
)


def measure(quick: bool) -> Bench:
    """Train everybody, seed by seed."""
    bench = Bench(
        "learn",
        "Learning a task",
        quick,
        rounds=2,
        settings={
            "iterations": {task.name: _iterations(task, quick) for task in TASKS},
            "tasks": {task.name: task.options() for task in TASKS},
            "processes": {task.name: task.processes for task in TASKS},
            "note": NOTE,
        },
    )
    for task in TASKS:
        if reason := task.missing():
            bench.absent(task.title, reason)
        else:
            _measure(bench, task, _iterations(task, quick))
    return bench


def _iterations(task: Task, quick: bool) -> int:
    return 2 if quick else task.iterations


def _measure(bench: Bench, task: Task, iterations: int) -> None:
    options = task.options()
    steps = iterations * options["envs"] * options["steps"]  # type: ignore[operator]
    samples: dict[str, list[dict[str, Any] | None]] = {n: [] for n in (OURS, SAME, *PEERS)}
    processes = f"simulator.processes={task.processes}"

    def peer(module: str, seed: int) -> Any:
        interpreter = python(task.peers, bench)
        words = [task.name, str(steps), str(seed), json.dumps(options)]
        return run_json([interpreter, "-m", module, *words])

    def mine(simulator: str, seed: int) -> Any:
        return ours.train(task.name, iterations, seed, f"simulator={simulator}", processes)

    for seed in range(bench.rounds):
        for name, simulator in ((OURS, task.name), (SAME, f"{task.name}_peers")):
            found = bench.sample(
                f"{task.title}: {name}", seed, lambda s=simulator, k=seed: mine(s, k)
            )
            samples[name].append(found)
        for name, module in PEERS.items():
            found = bench.sample(f"{task.title}: {name}", seed, lambda m=module, k=seed: peer(m, k))
            samples[name].append(found)

    def of(name: str, key: str) -> list[float | None]:
        return [None if s is None else s[key] for s in samples[name]]

    try:
        fastest = best({name: of(name, "steps_per_s") for name in PEERS}, most=True)
    except Failed as failure:
        bench.absent(task.title, str(failure))
        return
    others = [fastest, *(name for name in PEERS if name != fastest)]
    for other in others:
        aim = 1.3 if other == fastest else None
        for name in (OURS, SAME):
            bench.compare(
                f"{task.title}, end to end" + ("" if name == OURS else ", same environment"),
                "steps/s",
                of(name, "steps_per_s"),
                other,
                of(other, "steps_per_s"),
                at_least=aim if name == OURS else None,
                note="with our task code" if name == OURS else "the trainers alone",
            )
    for key, unit in (("goal_seconds", "s"), ("goal_steps", "steps")):
        for other in others:
            bench.compare(
                f"{task.title}, to 90% success", unit, of(OURS, key), other, of(other, key)
            )
