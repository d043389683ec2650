"""Rules about several numbers: what is refused, and that the numbers offered would work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_core.config.arithmetic import Numbers, check
from rlinf_core.config.schema import CollectConfig, RunConfig, UpdateConfig
from rlinf_core.placement import parse_placement


def numbers(collect=None, update=None, group_size=1, placement=None, devices=None):
    """Return what the rules look at; ``placement`` is component to (resources, processes)."""
    config = RunConfig(
        collect=CollectConfig(**(collect or {})), update=UpdateConfig(**(update or {}))
    )
    placement = placement or {}
    entries, wrong = parse_placement({k: f"{r}:{n}" for k, (r, n) in placement.items()})
    assert not wrong
    counts = devices or {}
    return Numbers(
        config,
        group_size,
        {name: entry.processes for entry in entries for name in entry.components},
        [(entry, counts.get(entry.key, 1)) for entry in entries],
    )


def findings(*args, **options):
    return {p.path: p for p in check(numbers(*args, **options))}


def apply(suggestion, collect=None, update=None, group_size=1, placement=None, devices=None):
    """Return what is found once a suggestion was followed."""
    path, _, value = suggestion.partition("=")
    section, _, key = path.partition(".")
    collect, update, placement = dict(collect or {}), dict(update or {}), dict(placement or {})
    if section == "placement":
        resources, _, count = value.strip("'").rpartition(":")
        placement[key] = (resources, int(count))
    else:
        holder = {"collect": collect, "update": update}[section]
        holder[key] = None if value == "null" else int(value)
    return findings(collect, update, group_size, placement, devices)


def test_the_defaults_fit_together():
    assert findings() == {}


@pytest.mark.parametrize(("envs", "stages"), [(1, 2), (5, 2), (16, 3), (3, 4), (7, 7 * 3)])
def test_case_k01_environments_that_do_not_split_into_stages(envs, stages):
    collect, update = {"envs": envs, "stages": stages}, {"minibatch_size": 1}
    problem = findings(collect, update)["collect.stages"]
    assert problem.found == (
        f"collect.envs={envs} cannot be split evenly into collect.stages={stages}"
    )
    assert {s.partition("=")[0] for s in problem.suggestions} == {"collect.envs", "collect.stages"}
    for suggestion in problem.suggestions:
        assert apply(suggestion, collect, update) == {}


def test_case_k01_one_environment_two_stages_and_four_workers():
    collect, update = {"envs": 1, "stages": 2, "steps": 8}, {"minibatch_size": 8}
    placement = {"simulation": ("0-3", 4)}
    devices = {"simulation": 4}
    problem = findings(collect, update, 1, placement, devices)["collect.stages"]
    assert str(problem) == (
        "collect.stages: collect.envs=1 cannot be split evenly over 4 simulation processes into "
        "collect.stages=2, wanted collect.envs=8"
    )
    assert apply("collect.envs=8", collect, update, 1, placement, devices) == {}


def test_case_k01_eight_samples_eight_ranks_and_micro_three():
    collect, update = {"envs": 8, "steps": 1}, {"minibatch_size": 8, "microbatch_size": 3}
    placement, devices = {"training": ("0-7", 8)}, {"training": 8}
    problem = findings(collect, update, 1, placement, devices)["update.microbatch_size"]
    assert str(problem) == (
        "update.microbatch_size: update.microbatch_size=3 is more than the 1 rows that each of 8 "
        "training processes has of update.minibatch_size=8, wanted update.microbatch_size=1 or "
        "null, or placement.training=0-7:2 or 0-7:1"
    )
    for suggestion in problem.suggestions:
        assert apply(suggestion, collect, update, 1, placement, devices) == {}


@pytest.mark.parametrize(("envs", "steps", "size"), [(4, 25, 400), (1, 1, 2), (8, 1, 9)])
def test_case_k01_a_minibatch_larger_than_what_is_collected(envs, steps, size):
    collect, update = {"envs": envs, "steps": steps}, {"minibatch_size": size}
    problem = findings(collect, update)["update.minibatch_size"]
    assert f"minibatch_size={size} is more than the {envs * steps} rows" in problem.found
    for suggestion in problem.suggestions:
        assert apply(suggestion, collect, update) == {}
    enough = next(s for s in problem.suggestions if s.startswith("collect.steps="))
    assert apply(f"collect.steps={int(enough.partition('=')[2]) - 1}", collect, update)


def test_case_k01_a_microbatch_larger_than_its_minibatch():
    update = {"minibatch_size": 8, "microbatch_size": 24}
    problem = findings(update=update)["update.microbatch_size"]
    assert "update.microbatch_size=24 is more than update.minibatch_size=8" in problem.found
    assert problem.suggestions == (
        "update.microbatch_size=8",
        "update.microbatch_size=4",
        "update.microbatch_size=2",
        "update.minibatch_size=24",
    )
    for suggestion in problem.suggestions:
        assert apply(suggestion, update=update) == {}


def test_case_n11_groups_are_whole_in_every_process_and_stage():
    collect, update = {"envs": 24, "stages": 2, "steps": 4}, {"minibatch_size": 32}
    placement, devices = {"simulation": ("0-1", 2)}, {"simulation": 2}
    problem = findings(collect, update, 8, placement, devices)["collect.envs"]
    assert problem.found == (
        "collect.envs=24 over collect.stages=2 in 2 simulation processes are not whole groups of "
        "algorithm.group_size=8, and a group is never split"
    )
    assert "collect.envs=32" in problem.suggestions
    assert "placement.simulation=0-1:1" not in problem.suggestions, "24 / 2 is no whole group"
    for suggestion in problem.suggestions:
        assert apply(suggestion, collect, update, 8, placement, devices) == {}


def test_every_rollout_process_has_a_stream_to_serve():
    collect, update = {"envs": 4, "stages": 1}, {"minibatch_size": 4}
    placement, devices = {"rollout": ("0-3", 4)}, {"rollout": 4}
    problem = findings(collect, update, 1, placement, devices)["placement.rollout"]
    assert problem.found.startswith("4 rollout processes have 1 stream of steps to serve")
    assert "collect.stages=4" in problem.suggestions
    assert "placement.rollout=0-3:1" in problem.suggestions
    for suggestion in problem.suggestions:
        assert apply(suggestion, collect, update, 1, placement, devices) == {}


SMALL = st.integers(1, 24)


@settings(max_examples=300, deadline=None)
@given(
    collect=st.fixed_dictionaries({"envs": SMALL, "steps": SMALL, "stages": st.none() | SMALL}),
    update=st.fixed_dictionaries({"minibatch_size": SMALL, "microbatch_size": st.none() | SMALL}),
    group_size=st.integers(1, 4),
    devices=st.fixed_dictionaries({n: st.integers(1, 8) for n in ("simulation", "training")}),
    split=st.fixed_dictionaries({n: st.integers(0, 3) for n in ("simulation", "training")}),
    together=st.booleans(),
)
def test_case_k01_whatever_is_suggested_makes_the_finding_go_away(
    collect, update, group_size, devices, split, together
):
    places = {}
    for name, count in devices.items():
        works = [n for n in range(1, 2 * count + 1) if n % count == 0 or count % n == 0]
        places[name] = (f"0-{count - 1}", works[split[name] % len(works)])
    if together:
        places = {"simulation,rollout": places["simulation"], "training": places["training"]}
        devices = {**devices, "simulation,rollout": devices["simulation"]}
    given_numbers = (collect, update, group_size, places, devices)
    for path, problem in findings(*given_numbers).items():
        for suggestion in problem.suggestions:
            assert path not in apply(suggestion, *given_numbers), (problem, suggestion)
        # An option always mends it, but for a group and its steps, which may fit no small rollout.
        assert problem.suggestions or group_size > 1 or placed(places), problem


def placed(places):
    return any(count > 1 for _, count in places.values())


@pytest.mark.parametrize(
    "path",
    [
        "steps",
        "collect.envs",
        "collect.steps",
        "collect.stages",
        "collect.chunk",
        "update.epochs",
        "update.minibatch_size",
        "update.microbatch_size",
        "evaluation.episodes",
        "evaluation.envs",
        "checkpoint.keep",
    ],
)
def test_case_k01_every_zero_is_refused_before_anything_starts(write, refuse, path):
    write(run="simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n")
    assert refuse(f"{path}=0") == [
        f"command line: {path}: found 0, wanted a number greater than or equal to 1, for a run "
        "(from rlinf-core)"
    ]


@pytest.mark.parametrize("path", ["evaluation.every", "checkpoint.every", "seed"])
def test_zeros_that_mean_something(write, load, path):
    write(run="simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n")
    load(f"{path}=0")


def test_case_k01_arithmetic_is_reported_with_its_place(write, refuse):
    write(
        run="""\
        simulator: zoo-world
        model: zoo-critic
        algorithm: zoo-a2c
        training: zoo-sgd
        collect: {envs: 3, stages: 2}
        """
    )
    lines = refuse("update.microbatch_size=500")
    assert len(lines) == 3
    assert lines[0].startswith("run.yaml: update.minibatch_size: "), "a default has no line"
    assert lines[1].startswith("run.yaml:5: collect.stages: collect.envs=3 cannot be split")
    assert lines[2].startswith("command line: update.microbatch_size: ")
