"""What Ray costs on one machine: the quick start on the runtime ``ray`` beside ``processes``.

Both have a process per worker and give the same numbers; what differs is how calls and items
travel, and what has to start before the first of them.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import ours
from benchmarks.bench import Bench

RUNTIMES = ("ray", "processes")

NOTE = (
    "The quick start with simulation, rollout and training in a process each, on two slots of the "
    "processor. With `ray` the run starts a Ray of its own. *Besides its iterations* a command "
    "starts, evaluates four episodes and ends."
)


def measure(quick: bool) -> Bench:
    """Measure both, in turn."""
    iterations = 2 if quick else 8
    settings = {"iterations": iterations, "run": "quickstart", "note": NOTE}
    bench = Bench("ray", "Ray", quick, rounds=3, settings=settings)
    found: dict[str, list[dict[str, float] | None]] = {name: [] for name in RUNTIMES}
    for number in range(bench.rounds):
        for name, samples in found.items():
            samples.append(bench.sample(name, number, lambda n=name: _timed(n, iterations)))
    for what, key in (("an iteration", "iteration_s"), ("besides its iterations", "besides_s")):
        values = {name: [s and s[key] for s in samples] for name, samples in found.items()}
        bench.compare(
            f"the quick start, {what}, ray", "s", values["ray"], "processes", values["processes"]
        )
    return bench


def _timed(runtime: str, iterations: int) -> dict[str, Any]:
    began = time.perf_counter()
    few = ("evaluation={episodes: 4, video: false}", "placement=hybrid")
    found = ours.train("quickstart", iterations, 0, *few, f"cluster.runtime={runtime}")
    seconds = time.perf_counter() - began
    return {
        "iteration_s": found["iteration_s"],
        "besides_s": seconds - iterations * found["iteration_s"],
    }
