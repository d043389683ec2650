"""Rules that join several numbers of a run, and what to try where one is broken.

Add a rule as a function of :class:`Numbers` that yields what is wrong and the numbers it would try
instead, and list it in :data:`RULES` or :data:`TRAINING_RULES`. What is offered in the end is for
:mod:`rlinf_core.config.arithmetic`, which tries it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rlinf_core.config.schema import MOST_ENVS, MOST_ROWS, MOST_STAGES, MOST_STEPS


@dataclass(frozen=True)
class Numbers:
    """The numbers of a run that must fit together.

    Args:
        envs: environments, over all workers.
        steps: steps per environment and iteration.
        minibatch_size: rows per optimizer step, over all ranks.
        stages: groups of environments that take turns, on each worker.
        microbatch_size: rows that a rank holds in memory at a time; None for all that it has.
        group_size: environments that the algorithm compares with one another.
        workers: processes that simulate, each with the same number of environments.
        ranks: processes that train, each with the same number of rows.
        trains: whether the run trains; else only ``envs``, ``stages`` and ``workers`` count.
    """

    envs: int
    steps: int
    minibatch_size: int
    stages: int = 1
    microbatch_size: int | None = None
    group_size: int = 1
    workers: int = 1
    ranks: int = 1
    trains: bool = True

    @property
    def rows(self) -> int:
        """Rows that one iteration collects."""
        return self.envs * self.steps

    @property
    def group(self) -> int:
        """Environments that are never split; 1 where nothing is compared."""
        return self.group_size if self.trains else 1

    @property
    def piece(self) -> int:
        """Rows that are never split: those of one group; else a single one."""
        return self.group_size * self.steps if self.group_size > 1 else 1


NAMES: Mapping[str, str] = MappingProxyType(
    {
        "envs": "collect.envs",
        "steps": "collect.steps",
        "stages": "collect.stages",
        "minibatch_size": "update.minibatch_size",
        "microbatch_size": "update.microbatch_size",
        "group_size": "algorithm.group_size",
        "workers": "simulation workers",
        "ranks": "training ranks",
    }
)
"""Field of :class:`Numbers` to what a person calls it: the option, where it is one."""

LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "envs": MOST_ENVS,
        "steps": MOST_STEPS,
        "stages": MOST_STAGES,
        "minibatch_size": MOST_ROWS,
        "microbatch_size": MOST_ROWS,
    }
)
"""The largest value that the schema takes, where the field is an option of its own."""


@dataclass(frozen=True)
class Broken:
    """A broken rule.

    Args:
        path: dotted path of the option that it is told about.
        what: what was found, in a sentence without its full stop.
        offers: field of :class:`Numbers` to values, any of which would mend it alone.
        rule: name of the rule.
    """

    path: str
    what: str
    offers: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    rule: str = ""

    @property
    def fault(self) -> tuple[str, str]:
        """What tells it from others, whatever the numbers are."""
        return self.rule, self.path


def counts_are_positive(n: Numbers) -> Iterator[Broken]:
    """Nothing can be shared among nobody."""
    for name, label in NAMES.items():
        value = getattr(n, name)
        if value is not None and value < 1:
            path = label if name in LIMITS else "cluster"
            yield Broken(path, f"{label}={value}, wanted at least 1", {name: (1,)})


def stages_divide_envs(n: Numbers) -> Iterator[Broken]:
    """Every stage of every worker holds the same number of environments."""
    unit = n.stages * n.workers
    if n.group == 1 and n.envs % unit:
        each = f" on each of {n.workers} simulation workers" if n.workers > 1 else ""
        yield Broken(
            NAMES["stages"],
            f"collect.envs={n.envs} cannot be split evenly into collect.stages={n.stages}{each}",
            {
                "envs": multiples(n.envs, unit),
                "stages": _divisors(n.envs, n.workers),
                "workers": _divisors(n.envs, n.stages),
            },
        )


def groups_are_whole(n: Numbers) -> Iterator[Broken]:
    """A group of environments is never split over stages or workers."""
    unit = n.group * n.stages * n.workers
    if n.group > 1 and n.envs % unit:
        each = f" on {n.workers} simulation workers" if n.workers > 1 else ""
        yield Broken(
            NAMES["envs"],
            f"collect.envs={n.envs} over collect.stages={n.stages}{each} are not whole groups of "
            f"algorithm.group_size={n.group}, and a group is never split",
            {"envs": multiples(n.envs, unit), "stages": _divisors(n.envs, n.group * n.workers)},
        )


def minibatch_fits_rollout(n: Numbers) -> Iterator[Broken]:
    """A minibatch is taken from the rows of one iteration."""
    size = n.minibatch_size
    if size > n.rows:
        envs = -(-size // n.steps)
        unit = n.group * n.stages * n.workers
        yield Broken(
            NAMES["minibatch_size"],
            f"update.minibatch_size={size} is more than the {n.rows} rows that one iteration "
            f"collects (collect.envs={n.envs} times collect.steps={n.steps})",
            {
                "minibatch_size": _halves(n.rows, n.ranks * n.piece),
                "steps": (-(-size // n.envs),),
                "envs": (-(-envs // unit) * unit,),
            },
        )


def minibatch_is_shared_evenly(n: Numbers) -> Iterator[Broken]:
    """A minibatch holds whole groups, and the same number of rows for each rank."""
    unit, size = n.ranks * n.piece, n.minibatch_size
    if size % unit == 0:
        return
    offers = {"minibatch_size": multiples(size, unit), "ranks": _divisors(size, n.piece)}
    each = f" on each of {n.ranks} training ranks" if n.ranks > 1 else ""
    if n.group == 1:
        what = f"update.minibatch_size={size} cannot be split evenly over {n.ranks} training ranks"
    else:
        what = (
            f"update.minibatch_size={size} is no multiple of the {unit} rows of one group{each} "
            f"(algorithm.group_size={n.group} times collect.steps={n.steps}), and a group is never "
            "split"
        )
    yield Broken(NAMES["minibatch_size"], what, offers)


def rows_are_shared_evenly(n: Numbers) -> Iterator[Broken]:
    """The last minibatch of an epoch, too, has the same number of rows for each rank."""
    unit = n.ranks * n.piece
    if n.ranks > 1 and n.rows % unit:
        groups = f", {n.group} environments together" if n.group > 1 else ""
        yield Broken(
            NAMES["envs"],
            f"the {n.rows} rows that one iteration collects (collect.envs={n.envs} times "
            f"collect.steps={n.steps}) cannot be split evenly over {n.ranks} training "
            f"ranks{groups}",
            {
                "envs": multiples(n.envs, envs_unit(n)),
                "steps": multiples(n.steps, unit) if n.group == 1 else (),
                "ranks": _divisors(n.rows, n.piece),
            },
        )


def microbatch_fits_minibatch(n: Numbers) -> Iterator[Broken]:
    """A micro-batch is a part of what a rank has of a minibatch."""
    micro, size = n.microbatch_size, n.minibatch_size
    share = size // n.ranks
    if micro is not None and micro > max(share, 1):
        found = f"update.minibatch_size={size}"
        if n.ranks > 1:
            found = f"the {share} rows that each of {n.ranks} training ranks has of {found}"
        yield Broken(
            NAMES["microbatch_size"],
            f"update.microbatch_size={micro} is more than {found}",
            {
                "microbatch_size": (*_halves(share), None),
                "minibatch_size": (micro * n.ranks,),
            },
        )


Rule = Callable[[Numbers], Iterator[Broken]]
RULES: tuple[Rule, ...] = (stages_divide_envs, groups_are_whole)
"""Rules of every run, in the order they are reported."""
TRAINING_RULES: tuple[Rule, ...] = (
    minibatch_fits_rollout,
    minibatch_is_shared_evenly,
    rows_are_shared_evenly,
    microbatch_fits_minibatch,
)
"""Rules of a run that trains."""


def envs_unit(n: Numbers) -> int:
    """Return the number of environments that stages, workers, groups and ranks share evenly."""
    unit = n.group * n.stages * n.workers
    if not n.trains:
        return unit
    whole = n.ranks * n.piece // n.group  # rows of ``ranks`` pieces, for one environment of each
    return math.lcm(unit, n.group * (whole // math.gcd(whole, n.steps)))


def multiples(number: int, unit: int) -> tuple[int, ...]:
    """Return the nearest multiples of a unit, the smaller first; one is enough where it is one."""
    down, up = number // unit * unit, -(-number // unit) * unit
    return tuple(n for n in dict.fromkeys((down, up)) if n)


def _divisors(number: int, times: int = 1, limit: int = 4) -> tuple[int, ...]:
    """Return the largest numbers that, so many times, divide a number."""
    if number % times:
        return ()
    rest = number // times
    small = [n for n in range(1, math.isqrt(rest) + 1) if rest % n == 0]
    return tuple(sorted({*small, *(rest // n for n in small)}, reverse=True)[:limit])


def _halves(number: int, unit: int = 1, limit: int = 3) -> tuple[int, ...]:
    """Return the largest multiple of a unit up to a number, and its halves of that sort."""
    found = [number // unit * unit]
    while len(found) < limit and found[-1] and found[-1] % (2 * unit) == 0:
        found.append(found[-1] // 2)
    return tuple(found)
