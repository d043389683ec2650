"""How fast a task's environment steps when nobody learns: ``... raw TASK PROCESSES STEPS``.

Each process steps its own environment with random actions and waits for nobody; this is as fast as
anything that steps one environment per process can be.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from typing import Any

import numpy as np

from benchmarks.peers.tasks import TASKS


def run(task: str, number: int, steps: int, begin: Any, done: Any) -> None:
    """Step one environment between the two barriers."""
    env = TASKS[task]()
    space, rng = env.action_space, np.random.default_rng(number)
    actions = rng.uniform(space.low, space.high, (100, *space.shape)).astype(np.float32)
    env.reset(seed=number)
    begin.wait()
    for step in range(steps):
        _, _, terminated, truncated, _ = env.step(actions[step % 100])
        if terminated or truncated:
            env.reset()
    done.wait()


def main() -> None:
    """Print steps per second over all processes."""
    task, processes, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    fork = multiprocessing.get_context("fork")
    begin, done = fork.Barrier(processes + 1), fork.Barrier(processes + 1)
    children = [
        fork.Process(target=run, args=(task, number, steps, begin, done))
        for number in range(processes)
    ]
    for child in children:
        child.start()
    begin.wait()
    began = time.perf_counter()
    done.wait()
    seconds = time.perf_counter() - began
    for child in children:
        child.join()
    print(json.dumps({"steps_per_s": processes * steps / seconds}))


if __name__ == "__main__":
    main()
