"""Collecting: how much of what the simulator can do is left while a policy acts in it.

Two limits of the same simulator code in the same processes: *by themselves*, every process steps
with random actions and they meet once an episode; *in lockstep*, all wait for each other after
every step, as any policy that acts on all of them at once makes them.
"""

from __future__ import annotations

from benchmarks import ours
from benchmarks.bench import Bench, run_json
from benchmarks.environments import python
from benchmarks.peers.tasks import EPISODE
from benchmarks.tasks import TASKS, Task

WIDTHS = (4, 64)
"""Numbers of environments: what the learners have, and enough to share the cost of a call."""


def measure(quick: bool) -> Bench:
    """Measure limits and rates, in turn."""
    steps = EPISODE if quick else 20 * EPISODE
    bench = Bench(
        "collect",
        "Collecting",
        quick,
        rounds=3,
        settings={"steps_of_each_environment": steps, "environments": list(WIDTHS)},
    )
    for task in TASKS:
        if reason := task.missing():
            bench.absent(task.title, reason)
            continue
        for code, simulator in (("our code", task.name), ("peers' code", f"{task.name}_peers")):
            for width in WIDTHS[:1] if quick else WIDTHS:
                _measure(bench, task, code, simulator, width, steps)
        _plain(bench, task, steps)
    return bench


def _measure(bench: Bench, task: Task, code: str, simulator: str, width: int, steps: int) -> None:
    what = f"{task.title}, {code}, {width} environments"
    overrides = [
        f"simulator={simulator}",
        f"simulator.processes={task.processes}",
        f"collect.envs={width}",
    ]
    short = ["update.epochs=1", *overrides]  # what is asked for is the rate while collecting
    alone, lockstep, collected = [], [], []
    each = max(EPISODE, steps * WIDTHS[0] // width)
    iterations = max(3, each // 200 + 1)  # the first is not counted

    for number in range(bench.rounds):
        alone.append(
            bench.sample(
                f"{what}: by themselves", number,
                lambda: ours.raw(task.name, EPISODE, each, overrides),
            )
        )  # fmt: skip
        lockstep.append(
            bench.sample(
                f"{what}: in lockstep", number, lambda: ours.raw(task.name, 1, each, overrides)
            )
        )
        found = bench.sample(
            f"{what}: collecting", number, lambda: ours.train(task.name, iterations, 0, *short)
        )
        collected.append(found and found["collect_steps_per_s"])
    bench.compare(
        f"{what}, collecting", "steps/s", collected, "raw, by themselves", alone, at_least=0.95
    )
    bench.compare(
        f"{what}, collecting", "steps/s", collected, "raw, in lockstep", lockstep,
        note="what is missing here is the policy, the channels and the trajectory",
    )  # fmt: skip


def _plain(bench: Bench, task: Task, steps: int) -> None:
    """Set our task code against the library's, both by themselves."""
    mine, plain = [], []
    words = [task.name, str(task.processes), str(steps)]
    overrides = [f"simulator={task.name}", f"simulator.processes={task.processes}"]
    for number in range(bench.rounds):
        what = f"{task.title}: simulator"
        mine.append(
            bench.sample(f"{what}, our code", number,
                         lambda: ours.raw(task.name, EPISODE, steps, overrides))
        )  # fmt: skip
        found = bench.sample(
            f"{what}, as its library makes it",
            number,
            lambda: run_json([python(task.peers, bench), "-m", "benchmarks.peers.raw", *words]),
        )
        plain.append(found and found["steps_per_s"])
    bench.compare(
        f"{task.title}, the simulator alone", "steps/s", mine, "as its library makes it", plain
    )
