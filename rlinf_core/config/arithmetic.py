"""Rules that join several numbers of a run. Each says which numbers would work.

Add a rule as a function of the whole configuration that yields ``(dotted path, sentence)``, and
list it in :data:`RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlinf_core.config.schema import UNREAD, RunConfig

Finding = tuple[str, str]


def stages_divide_envs(config: RunConfig) -> Iterator[Finding]:
    """Every stage holds the same number of environments."""
    envs, stages = config.collect.envs, config.collect.stages
    if envs % stages:
        down, up = envs // stages * stages, -(-envs // stages) * stages
        yield (
            "collect.stages",
            f"collect.envs={envs} cannot be split evenly into collect.stages={stages}. With "
            f"{stages} stages, envs={_or(n for n in (down, up) if n)} would work; with {envs} "
            f"envs, stages={_or(n for n in _divisors(envs))} would",
        )


def minibatch_fits_rollout(config: RunConfig) -> Iterator[Finding]:
    """A minibatch is taken from the rows of one iteration."""
    envs, steps, size = config.collect.envs, config.collect.steps, config.update.minibatch_size
    rows = envs * steps
    if size > rows:
        yield (
            "update.minibatch_size",
            f"update.minibatch_size={size} is more than the {rows} rows that one iteration "
            f"collects (collect.envs={envs} times collect.steps={steps}). "
            f"minibatch_size={_or(_halves(rows))} would work, or collect.steps={-(-size // envs)}",
        )


def microbatch_fits_minibatch(config: RunConfig) -> Iterator[Finding]:
    """A micro-batch is a part of a minibatch."""
    micro, size = config.update.microbatch_size, config.update.minibatch_size
    if micro is not None and micro > size:
        yield (
            "update.microbatch_size",
            f"update.microbatch_size={micro} is more than update.minibatch_size={size}. "
            f"microbatch_size={_or(_halves(size))} would work, or null for the whole minibatch",
        )


def groups_are_whole(config: RunConfig, group_size: int) -> Iterator[Finding]:
    """A group of environments is never split over stages, nor its rows over minibatches."""
    if group_size == 1:
        return
    collect, size = config.collect, config.update.minibatch_size
    unit = group_size * collect.stages
    if collect.envs % unit:
        works = [n for n in (collect.envs // unit * unit, -(-collect.envs // unit) * unit) if n]
        yield (
            "collect.envs",
            f"collect.envs={collect.envs} over collect.stages={collect.stages} are not whole "
            f"groups of algorithm.group_size={group_size}, and a group is never split. "
            f"envs={_or(works)} would work",
        )
    rows = group_size * collect.steps
    if size % rows:
        works = [n for n in (size // rows * rows, -(-size // rows) * rows) if n]
        yield (
            "update.minibatch_size",
            f"update.minibatch_size={size} is no multiple of the {rows} rows of one group "
            f"(algorithm.group_size={group_size} times collect.steps={collect.steps}), and a group "
            f"is never split. minibatch_size={_or(works)} would work",
        )


def every_section_is_read(config: RunConfig) -> Iterator[Finding]:
    """An embodied run takes rewards and starts from its simulator."""
    for name in sorted(UNREAD):
        if getattr(config, name) is not None:
            yield name, f"an embodied run reads no section {name!r}; leave it out"


Rule = Callable[[RunConfig], Iterator[Finding]]
RULES: tuple[Rule, ...] = (stages_divide_envs, every_section_is_read)
"""Rules of every run, in the order they are reported."""
TRAINING_RULES: tuple[Rule, ...] = (minibatch_fits_rollout, microbatch_fits_minibatch)
"""Rules of a run that trains."""


def check(config: RunConfig, trains: bool = True, group_size: int = 1) -> list[Finding]:
    """Return every broken rule of a configuration, as (dotted path, sentence).

    Args:
        config: the whole configuration.
        trains: whether the run trains.
        group_size: environments that the algorithm compares with one another.
    """
    rules = RULES + (TRAINING_RULES if trains else ())
    found = [finding for rule in rules for finding in rule(config)]
    return found + (list(groups_are_whole(config, group_size)) if trains else [])


def _divisors(number: int, limit: int = 4) -> list[int]:
    """Return the largest divisors of a number, one that a run may well use first."""
    return [n for n in range(number, 0, -1) if number % n == 0][:limit]


def _halves(number: int, limit: int = 3) -> list[int]:
    """Return a number and its halves, as long as they divide it."""
    found = [number]
    while len(found) < limit and found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found


def _or(numbers: Iterator[int] | list[int]) -> str:
    return " or ".join(str(n) for n in numbers)
