"""Rules about several numbers: what is refused, and that the numbers offered would work."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_core.config.arithmetic import broken, check, quantities, repaired, sentences
from rlinf_core.config.rules import NAMES, Numbers
from rlinf_core.config.schema import CollectConfig, RunConfig, UpdateConfig


def findings(collect=None, update=None):
    config = RunConfig(
        collect=CollectConfig(**(collect or {})), update=UpdateConfig(**(update or {}))
    )
    return dict(check(config))


def test_the_defaults_fit_together():
    assert findings() == {}


def offered(text: str, path: str) -> list[int | None]:
    """Return the numbers that a sentence says would work for an option."""
    (found,) = re.findall(rf"(?:\. |, or ){path}=((?:null|\d+)(?: or (?:null|\d+))*)", text)
    return [None if n == "null" else int(n) for n in found.split(" or ")]


@pytest.mark.parametrize(("envs", "stages"), [(1, 2), (5, 2), (16, 3), (3, 4), (7, 7 * 3)])
def test_case_k01_environments_that_do_not_split_into_stages(envs, stages):
    update = {"minibatch_size": 1}
    text = findings({"envs": envs, "stages": stages}, update)["collect.stages"]
    assert f"collect.envs={envs} cannot be split evenly into collect.stages={stages}" in text
    for number in offered(text, "collect.envs"):
        assert findings({"envs": number, "stages": stages}, update) == {}
    for number in offered(text, "collect.stages"):
        assert findings({"envs": envs, "stages": number}, update) == {}


def test_case_k01_one_environment_and_two_stages():
    assert findings({"envs": 1, "stages": 2}, {"minibatch_size": 1})["collect.stages"] == (
        "collect.envs=1 cannot be split evenly into collect.stages=2. collect.envs=2 would work, "
        "or collect.stages=1"
    )


@pytest.mark.parametrize(("envs", "steps", "size"), [(4, 25, 400), (1, 1, 2), (8, 1, 9)])
def test_case_k01_a_minibatch_larger_than_what_is_collected(envs, steps, size):
    collect = {"envs": envs, "steps": steps}
    text = findings(collect, {"minibatch_size": size})["update.minibatch_size"]
    assert f"minibatch_size={size} is more than the {envs * steps} rows" in text
    for number in offered(text, "update.minibatch_size"):
        assert findings(collect, {"minibatch_size": number}) == {}
    (enough,) = offered(text, "collect.steps")
    assert findings({"envs": envs, "steps": enough}, {"minibatch_size": size}) == {}
    assert findings({"envs": envs, "steps": enough - 1}, {"minibatch_size": size})
    (enough,) = offered(text, "collect.envs")
    assert findings({"envs": enough, "steps": steps}, {"minibatch_size": size}) == {}
    assert findings({"envs": enough - 1, "steps": steps}, {"minibatch_size": size})


def test_case_k01_a_microbatch_larger_than_its_minibatch():
    text = findings(update={"minibatch_size": 8, "microbatch_size": 24})["update.microbatch_size"]
    assert text == (
        "update.microbatch_size=24 is more than update.minibatch_size=8. update.microbatch_size=8 "
        "or 4 or 2 or null would work, or update.minibatch_size=24"
    )
    for number in (8, 4, 2, 3, None):
        assert findings(update={"minibatch_size": 8, "microbatch_size": number}) == {}
    assert findings(update={"minibatch_size": 24, "microbatch_size": 24}) == {}


def told(**numbers) -> list[str]:
    return [text for _, text in sentences(Numbers(**numbers))]


def test_case_k01_eight_samples_on_eight_ranks_in_threes():
    numbers = {"envs": 8, "steps": 1, "minibatch_size": 8, "ranks": 8, "microbatch_size": 3}
    assert told(**numbers) == [
        "update.microbatch_size=3 is more than the 1 rows that each of 8 training ranks has of "
        "update.minibatch_size=8. update.microbatch_size=1 or null would work"
    ]
    assert told(**numbers | {"microbatch_size": 1}) == []


def test_case_k01_one_environment_on_four_workers_in_two_stages():
    numbers = {"envs": 1, "steps": 8, "minibatch_size": 8, "stages": 2, "workers": 4}
    assert told(**numbers) == [
        "collect.envs=1 cannot be split evenly into collect.stages=2 on each of 4 simulation "
        "workers. collect.envs=8 would work"
    ]
    assert told(**numbers | {"envs": 8}) == []


def test_case_k01_groups_that_no_single_number_mends():
    numbers = {"envs": 6, "steps": 5, "minibatch_size": 12, "group_size": 4, "stages": 2}
    assert told(**numbers) == [
        "collect.envs=6 over collect.stages=2 are not whole groups of algorithm.group_size=4, and "
        "a group is never split. collect.envs=8 would work",
        "update.minibatch_size=12 is no multiple of the 20 rows of one group "
        "(algorithm.group_size=4 times collect.steps=5), and a group is never split. "
        "update.minibatch_size=20 would work. All together collect.envs=8, "
        "update.minibatch_size=20 would work",
    ]
    assert told(**numbers | {"envs": 8, "minibatch_size": 20}) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "group_size"])
def test_case_k01_zero_of_anything_is_refused_with_what_would_work(name):
    numbers = {"envs": 8, "steps": 4, "minibatch_size": 8, name: 0}
    (text,) = told(**numbers)
    assert text.startswith(f"{NAMES[name]}=0, wanted at least 1. ")
    assert broken(repaired(Numbers(**numbers))) == []


COUNT = st.integers(0, 40) | st.sampled_from([2, 4, 8, 64, 100, 1000])
NUMBERS = st.builds(
    Numbers,
    envs=COUNT,
    steps=COUNT,
    minibatch_size=COUNT | st.integers(0, 5000),
    stages=st.integers(0, 6),
    microbatch_size=st.none() | COUNT,
    group_size=st.integers(1, 9),
    workers=st.integers(0, 5),
    ranks=st.integers(0, 9),
    trains=st.booleans(),
)


@settings(max_examples=2000, deadline=None)
@given(numbers=NUMBERS)
def test_case_k01_every_number_that_is_offered_works(numbers):
    found = broken(numbers)
    faults = {it.fault for it in found}
    for it in found:
        for name, values in it.offers.items():
            for value in values:
                after = broken(replace(numbers, **{name: value}))
                assert len(after) < len(found), f"{name}={value} does not mend {it.what}"
                assert {a.fault for a in after} < faults
    together = repaired(numbers)
    assert together is not None
    assert broken(together) == []
    for it, (path, text) in zip(found, sentences(numbers), strict=True):
        assert path == it.path
        assert " would work" in text
        if len(found) == 1 and it.offers:
            for name in it.offers:
                assert tuple(offered(text, NAMES[name])) == it.offers[name]
    if not found:
        assert together == numbers, "what works is left as it is"


def test_numbers_that_no_limit_allows():
    (text,) = told(envs=1_000_000, steps=1, minibatch_size=8, stages=999, workers=999_999)
    assert text.endswith("No larger numbers are allowed; take smaller ones for the others")


@pytest.mark.parametrize(
    ("numbers", "rows", "batches", "last", "micro", "steps"),
    [
        ({"minibatch_size": 400}, 1600, 4, 400, 1, 40),
        ({"minibatch_size": 500, "microbatch_size": 128}, 1600, 4, 100, 4, 40),
        ({"minibatch_size": 1600, "microbatch_size": 1600}, 1600, 1, 1600, 1, 10),
    ],
)
def test_what_follows_from_the_numbers(numbers, rows, batches, last, micro, steps):
    config = RunConfig(steps=7, collect=CollectConfig(chunk=5), update=UpdateConfig(**numbers))
    found = {it.name: it.value for it in quantities(config)}
    assert found["rows per iteration"] == rows
    assert found["minibatches per epoch"] == batches
    assert found["rows of an epoch's last minibatch"] == last
    assert found["micro-batches per minibatch"] == micro
    assert found["most optimizer steps per iteration"] == steps
    assert found["most optimizer steps of the run"] == 7 * steps
    assert found["most environment steps of the run"] == 7 * 5 * rows
    assert found["environments of an evaluation"] == 16
    assert [it.name for it in quantities(config, trains=False)] == ["environments of an evaluation"]


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
