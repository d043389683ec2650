"""The arithmetic of a run: whether its numbers fit together, which would, and what follows.

The rules are in :mod:`rlinf_core.config.rules`. A number is offered only where it was tried: put in
alone, it mends its rule and breaks no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from rlinf_core.config.rules import (
    LIMITS,
    NAMES,
    RULES,
    TRAINING_RULES,
    Broken,
    Numbers,
    counts_are_positive,
    envs_unit,
    multiples,
)
from rlinf_core.config.schema import UNREAD, RunConfig

Finding = tuple[str, str]


def check(config: RunConfig, trains: bool = True, group_size: int = 1) -> list[Finding]:
    """Return every broken rule of a configuration, as (dotted path, sentence).

    Args:
        config: the whole configuration.
        trains: whether the run trains.
        group_size: environments that the algorithm compares with one another.
    """
    unread = [
        (name, f"an embodied run reads no section {name!r}; leave it out")
        for name in sorted(UNREAD)
        if getattr(config, name) is not None
    ]
    numbers = numbers_of(config, trains, group_size)
    return sentences(numbers) + unread


def numbers_of(config: RunConfig, trains: bool = True, group_size: int = 1) -> Numbers:
    """Return the numbers of a configuration that must fit together."""
    collect, update = config.collect, config.update
    return Numbers(
        envs=collect.envs,
        steps=collect.steps,
        stages=collect.stages,
        minibatch_size=update.minibatch_size,
        microbatch_size=update.microbatch_size,
        group_size=group_size,
        trains=trains,
    )


def broken(numbers: Numbers) -> list[Broken]:
    """Return every broken rule, with the numbers that would mend it alone."""
    found = list(_broken(numbers))
    faults = {it.fault for it in found}
    return [replace(it, offers=_working(numbers, it, faults - {it.fault})) for it in found]


def repaired(numbers: Numbers) -> Numbers | None:
    """Return numbers near those given that break no rule; None where the limits allow none.

    Stages, steps, workers, ranks and the group stay; environments are added, and the sizes of
    minibatch and micro-batch follow.
    """
    given = {name: getattr(numbers, name) for name in NAMES}
    least: dict[str, Any] = {name: max(1, v) for name, v in given.items() if v is not None}
    n = replace(numbers, **least)
    unit = n.ranks * n.piece
    n = replace(n, envs=multiples(n.envs, envs_unit(n))[-1])
    if n.trains:
        size = max(unit, min(n.minibatch_size, n.rows) // unit * unit)
        micro = n.microbatch_size
        if micro is not None:
            micro = max(1, min(micro, size // n.ranks))
        n = replace(n, minibatch_size=size, microbatch_size=micro)
    return n if all(_allowed(name, getattr(n, name)) for name in LIMITS) else None


def sentences(numbers: Numbers) -> list[Finding]:
    """Return (dotted path, sentence) of every broken rule, with the numbers that would work."""
    found = broken(numbers)
    findings = []
    for index, it in enumerate(found):
        offers = ", or ".join(
            f"{NAMES[name]}={_or(values)}{' would work' if i == 0 else ''}"
            for i, (name, values) in enumerate(it.offers.items())
        )
        parts = [it.what, offers] if offers else [it.what]
        if not offers or (len(found) > 1 and index == len(found) - 1):
            parts.append(_together(numbers, alone=not offers))
        findings.append((it.path, ". ".join(parts)))
    return findings


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
        Quantity("environments per stage", collect.envs // collect.stages, "envs / stages"),
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


def _broken(numbers: Numbers) -> Iterator[Broken]:
    """Yield every broken rule, with numbers that may mend it."""
    wrong = list(counts_are_positive(numbers))
    yield from wrong
    if wrong:  # the other rules would divide by it
        return
    for rule in RULES + (TRAINING_RULES if numbers.trains else ()):
        for it in rule(numbers):
            yield replace(it, rule=rule.__name__)


def _working(
    numbers: Numbers, it: Broken, others: set[tuple[str, str]]
) -> dict[str, tuple[int | None, ...]]:
    """Return what would mend one broken rule, and break nothing but what the others are about."""
    working = {}
    for name, values in it.offers.items():
        kept = [
            value
            for value in values
            if _allowed(name, value)
            and {after.fault for after in _broken(_with(numbers, name, value))} <= others
        ]
        if kept:
            working[name] = tuple(kept)
    return working


def _together(numbers: Numbers, alone: bool) -> str:
    """Return the changes that mend all at once.

    Args:
        numbers: what was given.
        alone: whether no single change mends the rule that it is told about.
    """
    mended = repaired(numbers)
    if mended is None:
        return "No larger numbers are allowed; take smaller ones for the others"
    changed = {name: getattr(mended, name) for name in NAMES}
    parts = [f"{NAMES[n]}={v}" for n, v in changed.items() if v != getattr(numbers, n)]
    return f"{'Only' if alone else 'All'} together {', '.join(parts)} would work"


def _allowed(name: str, value: int | None) -> bool:
    return value is None or 1 <= value <= LIMITS.get(name, value)


def _with(numbers: Numbers, name: str, value: int | None) -> Numbers:
    changed: dict[str, Any] = {name: value}
    return replace(numbers, **changed)


def _or(numbers: Any) -> str:
    return " or ".join("null" if n is None else str(n) for n in numbers)
