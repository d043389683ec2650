"""How long it takes from the command to the first update, that is until something was learned.

Ours is the quick start. The peer is a script of stable-baselines3 with the same task, batch,
minibatches and epochs. Both start from nothing: interpreter, imports, simulators, first rollout.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks.bench import BUILD, ROOT, Bench, Failed, environment
from benchmarks.environments import python
from benchmarks.ours import RLINF
from benchmarks.tasks import TASKS

MARK = "iteration 1"


def measure(quick: bool) -> Bench:
    """Measure both, in turn."""
    run = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text(encoding="utf-8"))
    task = TASKS[0]
    options = {
        **task.options(),
        **run["collect"],
        "epochs": run["update"]["epochs"],
        "minibatch": run["update"]["minibatch_size"],
    }
    bench = Bench("first_update", "The first update", quick, rounds=5, settings={"peer": options})
    steps = options["envs"] * options["steps"]  # type: ignore[operator]

    def ours() -> float:
        output = BUILD / "runs" / f"first-{os.getpid()}-{time.monotonic_ns()}"
        words = ["train", "quickstart", "steps=1", "evaluation.episodes=16"]
        options = ["evaluation.video=false", "--output", output]
        return until([*RLINF, *words, *options])

    def peer() -> float:
        words = [task.name, str(steps), "0", json.dumps(options)]
        return until([python(task.peers, bench), "-m", "benchmarks.peers.sb3_ppo", *words])

    mine, its = [], []
    for number in range(bench.rounds):
        mine.append(bench.sample("rlinf train quickstart", number, ours))
        its.append(bench.sample("stable-baselines3", number, peer))
    bench.compare(
        "from the command to the first update", "s", mine, "stable-baselines3", its, at_most=1.0
    )
    return bench


def until(command: Sequence[str | Path]) -> float:
    """Return the seconds from a command to the line that says so of its first iteration.

    Raises:
        Failed: it ended without that line.
    """
    began, seconds, said = time.perf_counter(), None, []
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(ROOT)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.strip())
            if seconds is None and MARK in line:
                seconds = time.perf_counter() - began
    if seconds is None or process.returncode:
        raise Failed("; ".join(said[-3:]) or f"exit code {process.returncode}")
    return seconds
