"""Rules that join several numbers of a run. Each says which numbers would work.

Add a rule as a function that yields a :class:`Broken`, and list it in :data:`RULES` or
:data:`TRAINING_RULES`. A rule only names candidates; those that are offered were tried, so every
number in a message works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from rlinf_core.config.schema import UNREAD, RunConfig
from rlinf_core.errors import Problem
from rlinf_core.placement import Entry, suggest


@dataclass(frozen=True)
class Numbers:
    """What the rules look at.

    Args:
        config: the whole configuration.
        group_size: environments that the algorithm compares with one another.
        ranks: number of processes by component; 1 where it is not known yet.
        entries: lines of the placement with their numbers of devices, to offer others.
        piecewise: whether the algorithm can begin with a part of a rollout.
    """

    config: RunConfig
    group_size: int = 1
    ranks: Mapping[str, int] = field(default_factory=dict)
    entries: Sequence[tuple[Entry, int]] = ()
    piecewise: bool = False

    def of(self, component: str) -> int:
        """Return the number of processes of a component."""
        return self.ranks.get(component, 1)

    @property
    def stages(self) -> int:
        """Pipeline stages; 1 where the planner chooses, which always works."""
        return self.config.collect.stages or 1


class Broken(NamedTuple):
    """A broken rule: where, what was found, and values of options that may mend it, best first."""

    path: str
    found: str
    candidates: Mapping[str, Iterable[int | None]] = {}


# --- rules ----------------------------------------------------------------------------------------


def environments_split_evenly(numbers: Numbers) -> Iterator[Broken]:
    """Every stage of every simulation process holds the same number of environments."""
    envs, stages, ranks = numbers.config.collect.envs, numbers.stages, numbers.of("simulation")
    unit = ranks * stages
    if envs % unit:
        over = f" over {ranks} simulation processes" if ranks > 1 else ""
        into = f" into collect.stages={stages}" if stages > 1 else ""
        yield Broken(
            "collect.stages" if stages > 1 else "collect.envs",
            f"collect.envs={envs} cannot be split evenly{over}{into}",
            {
                "collect.envs": _around(envs, unit * numbers.group_size),
                "collect.stages": _divisors(envs),
            },
        )


def groups_are_whole(numbers: Numbers) -> Iterator[Broken]:
    """A group of environments is never split over processes and stages."""
    group, collect, ranks = numbers.group_size, numbers.config.collect, numbers.of("simulation")
    unit = group * numbers.stages * ranks
    if group > 1 and collect.envs % unit:
        over = f" in {ranks} simulation processes" if ranks > 1 else ""
        yield Broken(
            "collect.envs",
            f"collect.envs={collect.envs} over collect.stages={numbers.stages}{over} are not whole "
            f"groups of algorithm.group_size={group}, and a group is never split",
            {
                "collect.envs": _around(collect.envs, unit),
                "collect.stages": _divisors(collect.envs),
            },
        )


def rollout_processes_have_work(numbers: Numbers) -> Iterator[Broken]:
    """Every rollout process serves at least one stage of one simulation process."""
    rollout, simulation = numbers.of("rollout"), numbers.of("simulation")
    streams = simulation * numbers.stages
    if streams < rollout:
        yield Broken(
            "placement.rollout",
            f"{rollout} rollout processes have {streams} stream{'s' * (streams > 1)} of steps to "
            f"serve ({simulation} simulation process{'es' * (simulation > 1)} times "
            f"collect.stages={numbers.stages}), so some would have nothing to do",
            {"collect.stages": range(-(-rollout // simulation), rollout + 1)},
        )


def minibatch_fits_rollout(numbers: Numbers) -> Iterator[Broken]:
    """A minibatch is taken from the rows of one iteration."""
    collect, size = numbers.config.collect, numbers.config.update.minibatch_size
    rows = collect.envs * collect.steps
    if size > rows:
        yield Broken(
            "update.minibatch_size",
            f"update.minibatch_size={size} is more than the {rows} rows that one iteration "
            f"collects (collect.envs={collect.envs} times collect.steps={collect.steps})",
            {
                "update.minibatch_size": _halves(rows),
                "collect.steps": [-(-size // collect.envs)],
            },
        )


def minibatch_splits_evenly(numbers: Numbers) -> Iterator[Broken]:
    """Every training process has the same number of a minibatch's rows, in whole groups."""
    collect, size = numbers.config.collect, numbers.config.update.minibatch_size
    group, ranks = numbers.group_size, numbers.of("training")
    rows = group * collect.steps if group > 1 else 1
    over = f" for each of {ranks} training processes" if ranks > 1 else ""
    if size % (rows * ranks):
        what = (
            f"the {rows} rows of one group (algorithm.group_size={group} times "
            f"collect.steps={collect.steps}){over}, and a group is never split"
            if group > 1
            else f"{ranks}, the number of training processes"
        )
        yield Broken(
            "update.minibatch_size",
            f"update.minibatch_size={size} is no multiple of {what}",
            {"update.minibatch_size": _around(size, rows * ranks)},
        )


def microbatch_fits_minibatch(numbers: Numbers) -> Iterator[Broken]:
    """A micro-batch is a part of what one training process has of a minibatch."""
    update, ranks = numbers.config.update, numbers.of("training")
    micro, mine = update.microbatch_size, update.minibatch_size // ranks
    if micro is not None and micro > mine:
        each = f"the {mine} rows that each of {ranks} training processes has of " * (ranks > 1)
        yield Broken(
            "update.microbatch_size",
            f"update.microbatch_size={micro} is more than {each}"
            f"update.minibatch_size={update.minibatch_size}",
            {
                "update.microbatch_size": [*_halves(mine), None] if mine else [None],
                "update.minibatch_size": [micro * ranks],
            },
        )


def streamed_minibatches_are_of_one_stage(numbers: Numbers) -> Iterator[Broken]:
    """Learning may begin with a stage only where that changes no advantage and splits nothing."""
    config, update = numbers.config, numbers.config.update
    if not update.streaming:
        return
    streams = numbers.of("simulation") * numbers.stages
    rows = config.collect.envs // streams * config.collect.steps
    if not numbers.piecewise:
        yield Broken(
            "update.streaming",
            "update.streaming=true, and the algorithm, so configured, compares all environments "
            "with one another, so it cannot begin with some of them",
            {"update.streaming": [False]},
        )
    elif numbers.of("training") > 1:
        yield Broken(
            "update.streaming",
            f"update.streaming=true with {numbers.of('training')} training processes, of which all "
            "but one would wait for each stage",
            {"update.streaming": [False]},
        )
    elif rows % update.minibatch_size:
        yield Broken(
            "update.minibatch_size",
            f"update.streaming=true, and the {rows} rows of each of {streams} stages are no "
            f"multiple of update.minibatch_size={update.minibatch_size}",
            {"update.minibatch_size": _divisors(rows), "update.streaming": [False]},
        )


def training_processes_have_environments(numbers: Numbers) -> Iterator[Broken]:
    """Every training process learns from at least one group of environments."""
    envs, ranks, group = numbers.config.collect.envs, numbers.of("training"), numbers.group_size
    if envs // group < ranks:
        what = f"{envs // group} groups of environments" if group > 1 else f"{envs} environments"
        yield Broken(
            "placement.training",
            f"{ranks} training processes share {what}, so some would learn from none",
            {"collect.envs": [ranks * group]},
        )


def every_section_is_read(numbers: Numbers) -> Iterator[Broken]:
    """An embodied run takes rewards and starts from its simulator."""
    for name in sorted(UNREAD):
        if getattr(numbers.config, name) is not None:
            yield Broken(name, f"an embodied run reads no section {name!r}; leave it out")


def restarts_repeat_whole_iterations(numbers: Numbers) -> Iterator[Broken]:
    """What is collected again was learned from not at all, and is collected by the same weights."""
    restarts, config = numbers.config.cluster.restarts, numbers.config
    if not (restarts.simulation or restarts.rollout):
        return
    if config.collect.max_staleness:
        yield Broken(
            "collect.max_staleness",
            f"collect.max_staleness={config.collect.max_staleness} with cluster.restarts, which "
            "cannot repeat what is collected while weights change",
            {"collect.max_staleness": [0]},
        )
    if config.update.streaming:
        yield Broken(
            "update.streaming",
            "update.streaming=true with cluster.restarts, which cannot repeat what was already "
            "learned from in part",
            {"update.streaming": [False]},
        )


Rule = Callable[[Numbers], Iterator[Broken]]
RULES: tuple[Rule, ...] = (every_section_is_read,)
"""Rules of every run, in the order they are reported."""
TRAINING_RULES: tuple[Rule, ...] = (
    environments_split_evenly,
    rollout_processes_have_work,
    groups_are_whole,
    minibatch_fits_rollout,
    minibatch_splits_evenly,
    microbatch_fits_minibatch,
    training_processes_have_environments,
    streamed_minibatches_are_of_one_stage,
    restarts_repeat_whole_iterations,
)
"""Rules of a run that trains; one that evaluates collects nothing."""


# --- checking -------------------------------------------------------------------------------------


def check(numbers: Numbers, trains: bool = True) -> list[Problem]:
    """Return every broken rule, with the numbers that would work."""
    problems: dict[str, Problem] = {}
    for broken in _broken(numbers, trains).values():
        offers = _offers(numbers, broken, trains)
        problems[broken.path] = Problem(
            broken.path,
            broken.found,
            f"wanted {_in_words(offers)}" if offers else "",
            tuple(suggest(path, _yaml(value)) for path, value in offers),
        )
    return list(problems.values())


def _broken(numbers: Numbers, trains: bool) -> dict[str, Broken]:
    """Return what is broken by path: the first rule's words, the candidates of all."""
    found: dict[str, Broken] = {}
    for rule in RULES + (TRAINING_RULES if trains else ()):
        for broken in rule(numbers):
            first = found.get(broken.path, broken)
            candidates = {**broken.candidates, **first.candidates}
            found[broken.path] = first._replace(candidates=candidates)
    return found


Offer = tuple[str, Any]


def _offers(numbers: Numbers, broken: Broken, trains: bool, limit: int = 3) -> list[Offer]:
    """Return the candidates that mend a broken rule, if possible those that break no other."""
    before = set(_broken(numbers, trains))
    clean: list[Offer] = []
    mending: list[Offer] = []
    for path, changes in _candidates(numbers, broken):
        found = [0, 0]
        for value, changed in changes:
            after = set(_broken(changed, trains))
            if broken.path in after or changed == numbers:
                continue
            good = after < before
            if found[good] < limit:
                (clean if good else mending).append((path, value))
            found[good] += 1
            if found[True] == limit:
                break
    return clean or mending


def _candidates(
    numbers: Numbers, broken: Broken
) -> Iterator[tuple[str, Iterator[tuple[Any, Numbers]]]]:
    """Yield by path the values that a rule names, and other numbers of processes."""
    for path, values in broken.candidates.items():
        yield path, _changed(numbers, path, values)
    for entry, devices in numbers.entries:
        yield entry.path, _placed(numbers, entry, devices)


def _changed(
    numbers: Numbers, path: str, values: Iterable[int | None]
) -> Iterator[tuple[Any, Numbers]]:
    section, _, key = path.partition(".")
    old = getattr(numbers.config, section)
    for value in values:
        try:
            new = type(old)(**{**old.model_dump(), key: value})
        except ValidationError:  # out of the option's own range
            continue
        yield value, replace(numbers, config=numbers.config.model_copy(update={section: new}))


def _placed(numbers: Numbers, entry: Entry, devices: int) -> Iterator[tuple[Any, Numbers]]:
    for count in range(2 * devices, 0, -1):
        if devices % count == 0 or count % devices == 0:
            ranks = {**numbers.ranks, **dict.fromkeys(entry.components, count)}
            yield f"{entry.resources}:{count}", replace(numbers, ranks=ranks)


def _in_words(offers: Sequence[Offer]) -> str:
    """Return ``collect.envs=4 or 6, or collect.stages=1``."""
    by_path: dict[str, list[str]] = {}
    for path, value in offers:
        by_path.setdefault(path, []).append(_yaml(value))
    return ", or ".join(f"{path}={' or '.join(values)}" for path, values in by_path.items())


def _yaml(value: Any) -> str:
    return "null" if value is None else "false" if value is False else str(value)


def _around(number: int, unit: int) -> list[int]:
    """Return the multiples of a unit next to a number."""
    return [n for n in (number // unit * unit, -(-number // unit) * unit) if n]


def _divisors(number: int) -> Iterator[int]:
    """Yield the divisors of a number, the largest first."""
    return (n for n in range(number, 0, -1) if number % n == 0)


def _halves(number: int, limit: int = 3) -> list[int]:
    """Return a number and its halves, as long as they divide it."""
    found = [number]
    while len(found) < limit and found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found
