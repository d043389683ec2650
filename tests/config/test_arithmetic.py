"""Rules about several numbers: what is refused, and that the numbers offered would work."""

from __future__ import annotations

import re

import pytest

from rlinf_core.config.arithmetic import check
from rlinf_core.config.schema import CollectConfig, RunConfig, UpdateConfig


def findings(collect=None, update=None):
    config = RunConfig(
        collect=CollectConfig(**(collect or {})), update=UpdateConfig(**(update or {}))
    )
    return dict(check(config))


def test_the_defaults_fit_together():
    assert findings() == {}


@pytest.mark.parametrize(("envs", "stages"), [(1, 2), (5, 2), (16, 3), (3, 4), (7, 7 * 3)])
def test_case_k01_environments_that_do_not_split_into_stages(envs, stages):
    update = {"minibatch_size": 1}
    text = findings({"envs": envs, "stages": stages}, update)["collect.stages"]
    assert f"collect.envs={envs} cannot be split evenly into collect.stages={stages}" in text
    offered = [int(n) for n in re.findall(r"\d+", text.split("envs=")[2].split(" would")[0])]
    assert offered
    for number in offered:
        assert findings({"envs": number, "stages": stages}, update) == {}
    offered = [int(n) for n in re.findall(r"\d+", text.rpartition("stages=")[2])]
    assert offered
    for number in offered:
        assert findings({"envs": envs, "stages": number}, update) == {}


def test_case_k01_one_environment_and_two_stages():
    assert findings({"envs": 1, "stages": 2}, {"minibatch_size": 1})["collect.stages"] == (
        "collect.envs=1 cannot be split evenly into collect.stages=2. With 2 stages, envs=2 would "
        "work; with 1 envs, stages=1 would"
    )


@pytest.mark.parametrize(("envs", "steps", "size"), [(4, 25, 400), (1, 1, 2), (8, 1, 9)])
def test_case_k01_a_minibatch_larger_than_what_is_collected(envs, steps, size):
    collect = {"envs": envs, "steps": steps}
    text = findings(collect, {"minibatch_size": size})["update.minibatch_size"]
    assert f"minibatch_size={size} is more than the {envs * steps} rows" in text
    sizes = text.split("minibatch_size=")[2].split(" would")[0]
    for number in re.findall(r"\d+", sizes):
        assert findings(collect, {"minibatch_size": int(number)}) == {}
    enough = int(text.rpartition("collect.steps=")[2])
    assert findings({"envs": envs, "steps": enough}, {"minibatch_size": size}) == {}
    assert findings({"envs": envs, "steps": enough - 1}, {"minibatch_size": size})


def test_case_k01_a_microbatch_larger_than_its_minibatch():
    text = findings(update={"minibatch_size": 8, "microbatch_size": 24})["update.microbatch_size"]
    assert "update.microbatch_size=24 is more than update.minibatch_size=8" in text
    assert "microbatch_size=8 or 4 or 2 would work" in text
    for number in (8, 4, 2, 3, None):
        assert findings(update={"minibatch_size": 8, "microbatch_size": number}) == {}


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
