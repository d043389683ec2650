"""What placements gain: simulating and acting side by side, and what of the ideal is left over.

Three questions. How much faster is a pipeline of two processes than the same parts in turn, where
both halves cost the same? How far is it from the shortest schedule there can be, on two devices
and on more? And what does a placement do to the runs that a user has?
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import ours
from benchmarks.bench import BUILD, ROOT, Bench
from benchmarks.tasks import TASKS

SLOTS = (2, 4, 8)
STAGES = 4  # the planner would choose 2, where nothing is left to do while an item travels
SLEEP = 100.0  # milliseconds of a stage: a policy of billions of parameters, a rendered world
STEPS = 30  # of each environment in an iteration
PARTS = ("simulator", "model")
ENVS = 16  # of the balanced toy
COSTS = {20.0: 40, 5.0: 100}  # milliseconds of a balanced toy's step, and steps of an iteration

PLACEMENTS = ("collocated", "disaggregated", "hybrid")

NOTE = (
    "A balanced toy: a stage's step takes its simulator so many milliseconds of a processor, and "
    "so does acting on it. Where workers sleep instead, two processors stand for any number of "
    "devices: the shortest schedule is the larger of all work divided by the devices and the "
    "longest chain of steps that wait for each other. With *disaggregated* and *hybrid* each "
    "worker has a process; on a machine with few cores that may cost more than it gains."
)


def measure(quick: bool) -> Bench:
    """Measure toys, then the runs that a user has."""
    bench = Bench(
        "pipeline",
        "Pipelines",
        quick,
        rounds=3,
        settings={
            "slots": list(SLOTS),
            "stages": STAGES,
            "sleep_ms": SLEEP,
            "steps": STEPS,
            "note": NOTE,
        },
    )
    for cost, steps in COSTS.items():
        _balanced(bench, cost, steps)
    for slots in SLOTS[:1] if quick else SLOTS:
        _bubble(bench, slots, STAGES)
    _bubble(bench, SLOTS[0], 2)
    _placements(bench, "quick start", "quickstart", 3 if quick else 10, ())
    for task in TASKS[1:]:  # the quick start is the first
        if reason := task.missing():
            bench.absent(task.title, reason)
        else:
            processes = f"simulator.processes={task.processes}"
            _placements(bench, task.title, task.name, 3 if quick else 8, (processes,))
    return bench


def _balanced(bench: Bench, cost: float, steps: int) -> None:
    """Set a pipeline of processes against the same parts in turn."""
    rates: dict[str, list[float | None]] = {"hybrid": [], "collocated": []}
    options = [f"collect={{envs: {ENVS}, steps: {steps}}}", f"update.minibatch_size={steps * ENVS}"]
    options += [f"{part}.milliseconds={2 * cost / ENVS}" for part in PARTS]  # in two stages
    for number in range(bench.rounds):
        for mode, samples in rates.items():
            found = bench.sample(
                f"balanced toy, {cost:g} ms, {mode}",
                number,
                lambda m=mode: ours.train(
                    "busy", 2 if bench.quick else 4, 0, f"placement={m}", *options,
                    picture=_picture(bench, f"timeline-toy-{m}"), shown=0.2,
                ),
            )  # fmt: skip
            samples.append(found and 1 / found["iteration_s"])
    bench.compare(
        f"balanced toy of {cost:g} ms, hybrid in two processes", "iterations/s", rates["hybrid"],
        "collocated, in turn", rates["collocated"], at_least=1.7,
        note="at most 2",
    )  # fmt: skip


def _bubble(bench: Bench, slots: int, stages: int) -> None:
    """Set the time of collecting against the shortest schedule."""
    half = slots // 2  # processes that simulate, and as many that act
    envs = half * stages  # one in each stage
    chain = 2 * STEPS * SLEEP / 1e3  # seconds: acted on, then simulated, again and again
    work = half * stages * chain
    shortest = max(work / slots, chain)
    overrides = [
        f"cluster.devices={slots} x cpu",
        "cluster.runtime=processes",
        f"placement={{simulation: 0-{half - 1}, rollout: {half}-{slots - 1}, training: 'all:1'}}",
        f"collect={{envs: {envs}, steps: {STEPS}, stages: {stages}}}",
        f"update.minibatch_size={envs * STEPS}",
        *(
            f"{part}.{option}"
            for part in PARTS
            for option in ("by=sleeping", f"milliseconds={SLEEP}")
        ),
    ]
    seconds = []
    for number in range(bench.rounds):
        found = bench.sample(
            f"sleeping toy, {slots} slots, {stages} stages",
            number,
            lambda: ours.train("busy", 2 if bench.quick else 3, 0, *overrides),
        )
        seconds.append(found and found["collect_s"])
    bench.compare(
        f"sleeping toy, {slots} slots, {stages} stages, collecting", "s", seconds,
        "the shortest schedule", [shortest] * bench.rounds,
        at_most=1.05 if stages == STAGES else None,
    )  # fmt: skip


def _placements(
    bench: Bench, title: str, run: str, iterations: int, overrides: tuple[str, ...]
) -> None:
    """Set the ready placements of a run against each other."""
    rates: dict[str, list[float | None]] = {mode: [] for mode in PLACEMENTS}
    few = ("evaluation={episodes: 4, video: false}", *overrides)
    for number in range(bench.rounds):
        for mode, samples in rates.items():
            found = bench.sample(
                f"{title}, {mode}",
                number,
                lambda m=mode: ours.train(
                    run, iterations, 0, f"placement={m}", *few,
                    picture=_picture(bench, f"timeline-{run}-{m}"),
                ),
            )  # fmt: skip
            samples.append(found and 1 / found["iteration_s"])
    for mode in PLACEMENTS[1:]:
        bench.compare(
            f"{title}, {mode}", "iterations/s", rates[mode],
            "collocated, in turn", rates[PLACEMENTS[0]],
        )  # fmt: skip


def _picture(bench: Bench, name: str) -> Path:
    """Return where the picture of a timeline goes: to the pages, if they are to have it."""
    folder = BUILD / "quick" if bench.quick else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"
