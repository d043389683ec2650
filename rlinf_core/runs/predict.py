"""How long an iteration would take: its tasks, laid out on a placement and played through.

The tasks are those of ``embodied.py`` and its workers: every stage is simulated and acted on in
turn, what was collected is learned from, the weights are sent. What a task costs was measured in an
earlier run (:mod:`rlinf_core.scheduling.costs`); who waits for whom is what the simulation of the
schedule adds. Two processes on one device are taken to compute one after the other, and slots of a
processor to be processors of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.flow.arrange import Arrangement
from rlinf_core.flow.memory import takes_turns
from rlinf_core.runs.layout import overlap, owned_envs, served_by, stage_keys, streams
from rlinf_core.scheduling.costs import Cost
from rlinf_core.scheduling.simulate import Task, busy_seconds, simulate

METHODS = ("collect", "serve", "update", "send_weights", "receive_weights")
"""The calls of an iteration, in the order of the flow."""

BETWEEN = "between"
"""What the driver does between two iterations: it logs, and writes the timeline."""

ALONE = "the one process"
"""A device that all workers share where one of them runs at a time."""

MOST_TASKS = 20_000
"""In one iteration; a longer one is played through in part and continued in proportion."""

Workers = tuple[tuple[str, ...], ...]
"""The devices of each process of a group, by rank."""


@dataclass(frozen=True)
class Layout:
    """What decides who waits for whom in one iteration.

    Attributes:
        simulation: devices of each process that simulates; ``rollout`` and ``training`` likewise.
        stages: pipeline stages of each simulation process.
        envs: environments of the whole run.
        steps: steps of one iteration.
        epochs: times that each row is learned from.
        group_size: environments that are never split.
        ahead: iterations that are collected before their weights are there.
        streaming: whether learning begins with the first stage that is there.
        alone: whether one worker runs at a time.
        turns: whether groups take turns on a device.
    """

    simulation: Workers
    rollout: Workers
    training: Workers
    stages: int
    envs: int
    steps: int
    epochs: int
    group_size: int = 1
    ahead: int = 0
    streaming: bool = False
    alone: bool = False
    turns: bool = False

    @property
    def rows(self) -> dict[str, float]:
        """Method to the rows of one of its items."""
        stage = self.envs / (len(self.simulation) * self.stages)
        mine = self.envs * self.steps * self.epochs / len(self.training)
        return {"collect": stage, "serve": stage, "update": mine}

    def devices(self, group: str, rank: int) -> tuple[str, ...]:
        """Return what a process needs in order to compute."""
        own: tuple[str, ...] = getattr(self, group)[rank]
        return (*own, *self.shared)

    @property
    def shared(self) -> tuple[str, ...]:
        """What everybody needs who does anything."""
        return (ALONE,) if self.alone else ()


@dataclass(frozen=True)
class Times:
    """How long things take, in seconds, and how much of the time each device is idle.

    Attributes:
        collect: from the first step to the last trajectory.
        update: of learning, without waiting for trajectories.
        iteration: from one update to the next.
        idle: device to the share of the time in which nobody computes there, from 0 to 1.
    """

    collect: float
    update: float
    iteration: float
    idle: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "collect_s": self.collect,
            "update_s": self.update,
            "iteration_s": self.iteration,
            "idle": dict(self.idle),
        }


@dataclass(frozen=True)
class Prediction:
    """What is predicted, from which run's costs, and what makes it less certain."""

    times: Times
    profile: str
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.times.as_json(), "profile": self.profile, "notes": list(self.notes)}


# --- layouts --------------------------------------------------------------------------------------


def layout_of(run: Run, arrangement: Arrangement) -> Layout:
    """Return the layout of a run that is only planned."""
    config, algorithm = run.config, run.facts.get("algorithm")

    def workers(group: str) -> Workers:
        places = arrangement.groups[group]
        return tuple(tuple(str(device) for device in process.devices) for process in places)

    return Layout(
        simulation=workers("simulation"),
        rollout=workers("rollout"),
        training=workers("training"),
        stages=arrangement.stages,
        envs=config.collect.envs,
        steps=config.collect.steps,
        epochs=config.update.epochs,
        group_size=algorithm.group_size if algorithm else 1,
        ahead=config.collect.max_staleness,
        streaming=config.update.streaming,
        alone=not run.can("runtime", Capability.PROCESSES),
        turns=bool(takes_turns(run, arrangement)),
    )


# --- predicting -----------------------------------------------------------------------------------


def predict(layout: Layout, known: Mapping[str, Cost], source: str) -> Prediction:
    """Return how long an iteration takes, once the pipeline has settled.

    Args:
        layout: who works where.
        known: method to what one of its items costs, with all of :data:`METHODS`.
        source: where that was measured, for the reader.
    """
    notes = [
        f"{name}: measured with {known[name].rows:g} rows at a time, here {rows:g}, in proportion"
        for name, rows in layout.rows.items()
        if known[name].rows and abs(known[name].rows - rows) > 1e-6 * rows
    ]
    if layout.turns and not any(cost.switch for cost in known.values()):
        notes.append("turns: nobody changed devices where this was measured, so that is left out")
    most = max(4, MOST_TASKS // (len(layout.simulation) * layout.stages))
    if layout.steps <= most:
        return Prediction(_play(layout, known, layout.steps), source, tuple(notes))
    short, long = (_play(layout, known, steps) for steps in (most // 2, most))

    def further(value: Callable[[Times], float]) -> float:
        slope = (value(long) - value(short)) / (most - most // 2)
        return value(long) + slope * (layout.steps - most)

    iteration = further(lambda times: times.iteration)
    idle = {}
    for device in long.idle:

        def seconds(times: Times, device: str = device) -> float:
            return times.idle[device] * times.iteration

        idle[device] = further(seconds) / iteration
    collect = further(lambda times: times.collect)
    return Prediction(Times(collect, long.update, iteration, idle), source, tuple(notes))


@dataclass
class _Program:
    """The tasks of several iterations, and which of them begin and end what."""

    layout: Layout
    known: Mapping[str, Cost]
    steps: int
    tasks: list[Task] = field(default_factory=list)
    collected: list[tuple[list[int], list[int]]] = field(default_factory=list)
    learned: list[list[int]] = field(default_factory=list)
    sent: list[list[int]] = field(default_factory=list)

    def add(
        self, name: str, group: str, rank: int, seconds: float, after: Iterable[int],
        computes: bool = True,
    ) -> int:  # fmt: skip
        devices = self.layout.devices(group, rank) if computes else self.layout.shared
        self.tasks.append(Task(name, f"{group}[{rank}]", devices, seconds, tuple(after)))
        return len(self.tasks) - 1

    def collect(self, after: Sequence[int]) -> dict[tuple[int, int], int]:
        """Add one collection; return the last task of each stream."""
        layout, rows = self.layout, self.layout.rows
        keys = stage_keys(len(layout.simulation), layout.stages)
        serving = [served_by(keys, len(layout.rollout), r) for r in range(len(layout.rollout))]
        simulated = {key: self.add("greet", "simulation", key[0], 0.0, after) for key in keys}
        first = list(simulated.values())
        simulating, acting = (self.known[n].of(rows[n]) for n in ("collect", "serve"))
        acted: dict[tuple[int, int], int] = {}
        for step in range(self.steps + 1):
            for rank, mine in enumerate(serving):
                for key in mine:
                    acted[key] = self.add("act", "rollout", rank, acting, [simulated[key]])
            for key in keys if step < self.steps else ():
                rank = key[0]
                simulated[key] = self.add("simulate", "simulation", rank, simulating, [acted[key]])
        self.collected.append((first, list(acted.values())))
        return acted

    def learn(self, last: Mapping[tuple[int, int], int]) -> None:
        """Add one update and the sending of its weights."""
        layout = self.layout
        ranks = len(layout.training)
        owned = owned_envs(layout.envs, layout.group_size, ranks)
        ids = streams(layout.envs, len(layout.simulation), layout.stages)
        whole = self.known["update"].of(layout.rows["update"])
        learned = []
        for rank, envs in enumerate(owned):
            pieces = [last[key] for key, these in ids.items() if these[overlap(these, envs)]]
            if layout.streaming:
                each = whole / layout.epochs / len(pieces)
                learned += [self.add("update", "training", rank, each, [p]) for p in pieces]
                rest = whole * (1 - 1 / layout.epochs)
                learned.append(self.add("update", "training", rank, rest, pieces))
            else:
                learned.append(self.add("update", "training", rank, whole, pieces))
        self.learned.append(learned)
        # Neither holds its device meanwhile, so nobody takes turns for it.
        cost = self.known["send_weights"].seconds
        sent = [
            self.add("send", "training", rank, cost, learned, computes=False)
            for rank in range(ranks)
        ]
        cost = self.known["receive_weights"].seconds
        got = [
            self.add("receive", "rollout", rank, cost, sent, computes=False)
            for rank in range(len(layout.rollout))
        ]
        if not layout.ahead:  # else it begins while something is under way
            pause = self.known.get(BETWEEN, Cost(0.0)).seconds
            got = [self.add(BETWEEN, "driver", 0, pause, got, computes=False)]
        self.sent.append(sent if layout.ahead else got)


def _play(layout: Layout, known: Mapping[str, Cost], steps: int) -> Times:
    """Return the times of an iteration of so many steps."""
    program = _Program(layout, known, steps)
    waiting: list[dict[tuple[int, int], int]] = []
    last = 2 + layout.ahead
    for number in range(last + 1):
        while len(program.collected) <= number + layout.ahead:
            before = len(program.collected) - 1 - layout.ahead
            waiting.append(program.collect(program.sent[before] if before >= 0 else ()))
        program.learn(waiting[number])
    groups = {"simulation": "collect", "rollout": "serve", "training": "update"}
    switching = {
        task.worker: known[groups[task.worker.partition("[")[0]]].switch
        for task in program.tasks
        if layout.turns and task.worker.partition("[")[0] in groups
    }
    done = simulate(program.tasks, switching, free={ALONE})
    ended = [max(done[task].ended for task in learned) for learned in program.learned]
    first, acted = program.collected[last]
    began = min(done[task].began for task in first)
    spent = busy_seconds(program.tasks, done, ended[-2], ended[-1])
    learners: dict[str, float] = {}
    for task in program.learned[last]:
        worker = program.tasks[task].worker
        learners[worker] = learners.get(worker, 0.0) + program.tasks[task].seconds
    iteration = ended[-1] - ended[-2]
    return Times(
        collect=max(done[task].ended for task in acted) - began,
        update=max(learners.values()),
        iteration=iteration,
        idle={
            device: 1.0 - seconds / iteration if iteration else 0.0
            for device, seconds in spent.items()
            if device != ALONE
        },
    )
