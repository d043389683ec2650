"""What follows from a run's numbers: rows, minibatches, steps. Rules are in ``arithmetic``."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlinf_core.config.schema import RunConfig


class Quantity(NamedTuple):
    """A number that follows from others.

    Args:
        name: what it counts.
        value: the number.
        how: what it was worked out from.
    """

    name: str
    value: int
    how: str


def quantities(config: RunConfig, trains: bool = True) -> list[Quantity]:
    """Return what follows from a configuration's numbers: rows, minibatches, steps."""
    collect, update, test = config.collect, config.update, config.evaluation
    envs = test.envs or collect.envs
    found = [Quantity("environments of an evaluation", envs, _given(test.envs, "evaluation.envs"))]
    if not trains:
        return found
    rows = collect.envs * collect.steps
    batches = -(-rows // update.minibatch_size)
    micro = min(update.microbatch_size or update.minibatch_size, update.minibatch_size)
    steps = update.epochs * batches
    return [
        Quantity("rows per iteration", rows, "envs x steps"),
        Quantity("most environment steps per iteration", rows * collect.chunk, "rows x chunk"),
        Quantity("minibatches per epoch", batches, "rows / minibatch_size, rounded up"),
        Quantity(
            "rows of an epoch's last minibatch",
            rows - (batches - 1) * update.minibatch_size,
            "what is left of the rows",
        ),
        Quantity(
            "micro-batches per minibatch",
            -(-update.minibatch_size // micro),
            "minibatch_size / microbatch_size, rounded up",
        ),
        Quantity("most optimizer steps per iteration", steps, "epochs x minibatches"),
        Quantity("most optimizer steps of the run", steps * config.steps, "x iterations"),
        Quantity(
            "most environment steps of the run",
            rows * collect.chunk * config.steps,
            "x iterations",
        ),
        *found,
    ]


def _given(value: Any, path: str) -> str:
    return path if value is not None else f"collect.envs, because {path} is null"
