"""Our own contestant of the learning benchmarks: how it is run and what is read from it.

``python -m benchmarks.ours raw RUN CHUNK STEPS [OVERRIDE ...]`` steps a run's simulator by itself.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import BUILD, ROOT, run_json
from benchmarks.peers.record import summary

RLINF = [sys.executable, "-c", "from rlinf_core.cli import main; main()"]
"""The command, without relying on where its script was installed."""

CONFIGS = ROOT / "benchmarks" / "configs"


def train(
    run: str,
    iterations: int,
    seed: int,
    *overrides: str,
    picture: Path | None = None,
    shown: float = 1.0,
) -> dict[str, Any]:
    """Train a run by the command line; return its summary, and the rate while collecting.

    Seconds are those of the whole loop of iterations as the command tells them; the share of an
    iteration that is not in its own ``iteration_s`` (logging, the last checkpoint) is spread over
    all.

    Args:
        run: a file in ``benchmarks/configs``, or a run that the core brings.
        iterations: to train for; where there are more, the first does not count for rates.
        seed: of the run.
        overrides: of the run file.
        picture: where to draw the timeline, under the title of its file's name.
        shown: how many seconds of it, from the end of the first iteration on.
    """
    unique = BUILD / "runs" / f"{run}-{os.getpid()}-{time.monotonic_ns()}"
    output = unique if picture is None else unique / picture.stem.removeprefix("timeline-")
    path = CONFIGS / f"{run}.yaml"
    words = ["train", str(path) if path.exists() else run, f"steps={iterations}", f"seed={seed}"]
    options = [*overrides, "--output", str(output), "--json"]
    result = run_json([*RLINF, *words, *options], whole=True)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    scale = result["seconds"] / sum(line["time"]["iteration_s"] for line in lines)
    rows, seconds = [], 0.0
    for line in lines:
        seconds += line["time"]["iteration_s"] * scale
        metrics = line["metrics"]
        count = metrics["episode/count"]
        solved = (metrics["episode/success_once"] or 0.0) * count
        rows.append([metrics["env_steps"], seconds, count, solved])
    if picture is not None:
        drawn = ["--picture", str(picture), "--seconds", str(shown)]
        run_json([*RLINF, "trace", str(output), *drawn, "--json"], whole=True)
    later = lines[1:] or lines  # the first waits for the simulator's processes to start
    steps = rows[-1][0] - (rows[0][0] if len(rows) > 1 else 0)
    return {
        **summary(rows),
        "iteration_s": statistics.median(line["time"]["iteration_s"] for line in later),
        "collect_s": statistics.median(line["time"]["collect_s"] for line in later),
        "collect_steps_per_s": steps / sum(line["time"]["collect_s"] for line in later),
        "update_share": sum(line["time"]["update_s"] for line in later)
        / sum(line["time"]["iteration_s"] for line in later),
    }


def raw(run: str, chunk: int, steps: int, overrides: Sequence[str] = ()) -> float:
    """Return steps per second of a run's simulator alone, in a process of its own.

    Args:
        run: a file in ``benchmarks/configs``.
        chunk: 1: every step is one call, as in a run; as long as an episode: processes step by
            themselves and meet once an episode, which is as fast as they can.
        steps: of each environment.
        overrides: of the run file.
    """
    words = ["raw", run, str(chunk), str(steps), *overrides]
    return float(run_json([sys.executable, "-m", "benchmarks.ours", *words])["steps_per_s"])


def _raw(run: str, chunk: int, steps: int, overrides: Sequence[str]) -> float:
    import torch

    from rlinf_core.api import EnvSlots
    from rlinf_core.config.validate import load_run
    from rlinf_core.plugins.resolve import load

    loaded = load_run(str(CONFIGS / f"{run}.yaml"), overrides)
    chosen, count = loaded.components["simulator"], loaded.config.collect.envs
    simulator = load(chosen.component)(chosen.config, EnvSlots(tuple(range(count)), 0, chunk))
    try:
        states = simulator.initial_states("train")
        simulator.reset(torch.ones(count, dtype=torch.bool), [states[i] for i in range(count)])
        space, generator = simulator.spaces.action, torch.Generator().manual_seed(0)
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        unit = torch.rand(100, count, chunk, len(low), generator=generator)
        actions = low + (high - low) * unit  # [100, N, C, A]
        done, next_state = 0, count
        began = time.perf_counter()
        for call in range(steps // chunk):
            step = simulator.step(actions[call % 100])
            done += int(step.valid.sum())
            ended = (step.truncated | step.terminated).any(dim=1)
            if ended.any():
                fresh = [states[next_state + i] for i in range(int(ended.sum()))]
                next_state += len(fresh)
                simulator.reset(ended, fresh)
        return done / (time.perf_counter() - began)
    finally:
        simulator.close()


if __name__ == "__main__":
    verb, name, chunk_, steps_, *rest = sys.argv[1:]
    assert verb == "raw"
    print(json.dumps({"steps_per_s": _raw(name, int(chunk_), int(steps_), rest)}))
