"""Planning a run: a dry pass of its own code, mapped on its placement.

The one function that says what is wrong with a run on this machine: ``rlinf plan`` prints it and
``rlinf train`` refuses by it. Imports no torch and starts nothing.
"""

from __future__ import annotations

from typing import Any

from rlinf_core.config.validate import Run
from rlinf_core.flow.arrange import Arrangement, arrange
from rlinf_core.flow.memory import memory
from rlinf_core.flow.plan import Plan
from rlinf_core.flow.trace import Graph, TracingRuntime
from rlinf_core.flow.transfers import transfers
from rlinf_core.runs.deadlines import unknown_methods
from rlinf_core.runs.embodied import EmbodiedRun
from rlinf_core.runs.interfaces import CONTENTS, interfaces
from rlinf_core.runs.layout import served_by, stage_keys

ITERATION = "iteration"
"""The phase of one iteration: collecting, learning, sending the weights."""


def make_plan(run: Run) -> Plan:
    """Return what a run that trains would do on this machine, and what is wrong with it."""
    arrangement, problems = arrange(run)
    problems = [*problems, *unknown_methods(run)]
    if arrangement is None:
        return Plan(run, None, None, (), None, (), tuple(problems))
    pools, more = memory(run, arrangement)
    if problems:  # its own code would refuse to be traced
        return Plan(run, arrangement, None, (), None, tuple(pools), (*problems, *more))
    graph = trace(run)
    moved = transfers(run, arrangement, graph, ITERATION, CONTENTS)
    batch = batch_arithmetic(run, arrangement)
    return Plan(run, arrangement, graph, tuple(moved), batch, tuple(pools), tuple(more))


def check_plan(run: Run) -> None:
    """Refuse a run that cannot work on this machine.

    Raises:
        ConfigError: with every problem that its plan shows.
    """
    make_plan(run).raise_any()


def trace(run: Run) -> Graph:
    """Return the flow of a run: its start, one iteration and an evaluation."""
    runtime = TracingRuntime(interfaces(run))
    embodied = EmbodiedRun(run, runtime, lambda text: None)
    with runtime.during(ITERATION):
        embodied.iterate()
    with runtime.during("evaluation"):
        embodied.evaluate()
    return runtime.graph


def batch_arithmetic(run: Run, arrangement: Arrangement) -> dict[str, Any]:
    """Return how many rows one iteration has, and what becomes of them."""
    collect, update = run.config.collect, run.config.update
    sizes = {name: len(group) for name, group in arrangement.groups.items()}
    keys = stage_keys(sizes["simulation"], arrangement.stages)
    rows = collect.envs * collect.steps
    minibatches = -(-rows // update.minibatch_size)
    mine = update.minibatch_size // sizes["training"]
    micro = min(update.microbatch_size or mine, mine)
    return {
        "environments": collect.envs,
        "steps": collect.steps,
        "chunk": collect.chunk,
        "rows": rows,
        "environment_steps": rows * collect.chunk,
        "environments_per_simulation_process": collect.envs // sizes["simulation"],
        "environments_per_stage": collect.envs // len(keys),
        "streams_per_rollout_process": [
            len(served_by(keys, sizes["rollout"], rank)) for rank in range(sizes["rollout"])
        ],
        "rows_per_training_process": rows // sizes["training"],
        "epochs": update.epochs,
        "minibatch_size": update.minibatch_size,
        "minibatches_per_epoch": minibatches,
        "optimizer_steps": update.epochs * minibatches,
        "minibatch_per_training_process": mine,
        "microbatch_size": micro,
        "microbatches_per_minibatch": -(-mine // micro),
    }
