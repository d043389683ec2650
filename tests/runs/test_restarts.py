"""Runs of which somebody fails who may be made anew: what they go on with, and what they say."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from runs_command import Command, wait_for

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError, WorkerFailed
from rlinf_core.files import sha256
from rlinf_core.runs.plan import make_plan
from rlinf_core.runs.train import train

RUN = {
    "run": "embodied",
    "name": "small",
    "seed": 7,
    "steps": 5,
    "simulator": {"name": "fragile", "horizon": 7},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 4, "steps": 5},
    "update": {"epochs": 2, "minibatch_size": 10},
    "checkpoint": {"every": 2},
    "evaluation": {"every": 2, "episodes": 3, "video": False},
}
GROUPS = {
    "algorithm": {"name": "grpo", "group_size": 2},
    "simulator": {"name": "fragile-shared", "horizon": 4},
}
MAY = ["cluster.restarts.simulation=2", "cluster.restarts.rollout=2"]
QUICK = ["cluster.deadlines.simulation=3", "cluster.deadlines.rollout=3"]
FAILURES = ("restarts", "redone_steps", "dropped_steps")


class Runs:
    """Trains the run above, with some of it changed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def __call__(self, *options: str, resume: bool = False, **changed):
        self._count += 1
        path = self._folder / "small.yaml"
        path.write_text(yaml.safe_dump({**RUN, **changed}, sort_keys=False))
        output = self._folder / ("resumed" if resume else str(self._count))
        return train(load_run(str(path), options), output, resume)

    def fail(self, part: str, at: int, how: str) -> list[str]:
        """Return the options that make a part fail once."""
        marker = self._folder / f"marker-{self._count}"
        rollout = ["rollout.name=fragile"] if part == "rollout" else []
        return [*rollout, f"{part}.at={at}", f"{part}.how={how}", f"{part}.marker={marker}"]


@pytest.fixture
def runs(tmp_path, toys) -> Runs:
    return Runs(tmp_path)


def numbers(result) -> list[dict]:
    lines = [json.loads(line) for line in result.metrics.read_text().splitlines()]
    return [
        {k: v for k, v in {"step": line["step"], **line["metrics"]}.items() if "failures" not in k}
        for line in lines
    ]


def weights(result) -> dict[str, str]:
    return {p.name: sha256(p) for p in sorted((result.checkpoint / "training").iterdir())}


def failures(result) -> tuple[int, ...]:
    return tuple(result.failures[name] for name in FAILURES)


def logged(result) -> list[tuple[float, ...]]:
    """Return what metrics say of failures, line by line."""
    lines = [json.loads(line)["metrics"] for line in result.metrics.read_text().splitlines()]
    return [tuple(line.get(f"failures/{name}") for name in FAILURES) for line in lines]


CASES = [
    ("inline", "simulator", "raise", 1),
    ("inline", "simulator", "raise", 13),
    ("inline", "rollout", "raise", 13),
    ("inline", "simulator", "hang", 13),
    ("processes", "simulator", "raise", 13),
    ("processes", "simulator", "SIGKILL", 13),
    ("processes", "simulator", "SIGSTOP", 13),
    ("processes", "rollout", "SIGSEGV", 13),
    ("processes", "rollout", "hang", 2),
]


@pytest.mark.parametrize(("runtime", "part", "how", "at"), CASES)
def test_a_step_that_is_done_again_gives_the_numbers_of_an_undisturbed_run(
    runs, runtime, part, how, at
):
    straight = runs()
    fail = runs.fail(part, at, how)
    mended = runs(f"cluster.runtime={runtime}", *MAY, *QUICK, *fail)
    assert numbers(mended) == numbers(straight)
    assert weights(mended) == weights(straight)
    assert mended.evaluation == straight.evaluation
    assert failures(mended) == (1, 1, 0)
    assert logged(mended)[-1] == (1.0, 1.0, 0.0)
    assert logged(straight) == [(None, None, None)] * 5


@pytest.mark.parametrize("placed", ["simulation: 0-1:2", "rollout: 0-1:2"])
def test_case_e07_several_workers_and_stages_are_put_back_alike(runs, placed):
    layout = {
        "cluster": {"devices": "2 x cpu", "runtime": "processes"},
        "placement": {**dict.fromkeys(("simulation", "rollout", "training"), "0-1:1")},
        "collect": {"envs": 4, "steps": 5, "stages": 2},
    }
    name, _, line = placed.partition(": ")
    layout["placement"][name] = line
    straight = runs(**layout)
    mended = runs(*MAY, *runs.fail("simulator", 8, "SIGKILL"), **layout)
    assert numbers(mended) == numbers(straight)
    assert weights(mended) == weights(straight)
    assert failures(mended) == (1, 1, 0)


def test_groups_are_put_back_without_restoring_anything(runs):
    straight = runs(**GROUPS)
    mended = runs(*MAY, *runs.fail("simulator", 13, "raise"), **GROUPS)
    assert numbers(mended) == numbers(straight)
    assert failures(mended) == (1, 1, 0)


def test_a_simulator_that_restores_nothing_begins_episodes_anew_and_says_so(runs, capsys):
    options = [*MAY, *runs.fail("simulator", 13, "raise"), "loggers=[jsonl,console]"]
    mended = runs("simulator.name=fragile-forgetful", *options)
    assert failures(mended) == (1, 1, 0)
    said = capsys.readouterr().err
    assert "episodes that were under way begin anew" in said
    assert "simulation[0].collect failed (ZeroDivisionError: as it was told)" in said
    assert "made anew: simulation[0]" in said
    assert [line["step"] for line in numbers(mended)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("changed", [{}, GROUPS], ids=["alone", "groups"])
def test_what_is_dropped_is_never_learned_from_and_is_counted(runs, changed):
    options = [*MAY, "cluster.restarts.lost=drop", "cluster.runtime=processes"]
    dropping = runs(*options, *runs.fail("simulator", 13, "SIGKILL"), **changed)
    assert failures(dropping) == (1, 0, 1)
    lines = numbers(dropping)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    if not changed:  # each iteration learns from a whole rollout
        assert [line["env_steps"] for line in lines] == [20, 40, 60, 80, 100]
    assert all(line["train/staleness"] == 0 for line in lines)
    assert logged(dropping)[-1] == (1.0, 0.0, 1.0)


def test_case_w08_versions_go_on_after_the_rollout_was_made_anew(runs):
    mended = runs("cluster.runtime=processes", *MAY, *runs.fail("rollout", 13, "SIGKILL"))
    state = json.loads((mended.checkpoint / "state.json").read_text())
    assert state["version"] == 5
    assert all(line["train/staleness"] == 0 for line in numbers(mended))


def test_an_evaluation_is_done_again(runs):
    straight = runs()
    mended = runs(*MAY, *runs.fail("rollout", 6 * 2 + 3, "raise"))  # of the first evaluation
    assert numbers(mended) == numbers(straight)
    assert mended.evaluation == straight.evaluation
    assert failures(mended) == (1, 0, 0)


def test_a_resumed_run_goes_back_to_what_it_resumed(runs):
    straight = runs(resume=False)
    first = runs("steps=2", resume=True)
    assert first.steps == 2
    mended = runs(*MAY, *runs.fail("simulator", 2, "raise"), resume=True)
    assert numbers(mended) == numbers(straight)
    assert weights(mended) == weights(straight)
    assert failures(mended) == (1, 1, 0)


def test_too_many_failures_end_the_run(runs):
    fail = runs.fail("simulator", 13, "raise")
    with pytest.raises(WorkerFailed, match="as it was told"):
        runs("cluster.restarts.rollout=3", *fail)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["collect.max_staleness=1"], "collect.max_staleness=1 with cluster.restarts"),
        (["update.streaming=true"], "update.streaming=true with cluster.restarts"),
    ],
)
def test_what_cannot_be_repeated_is_refused_when_planned(runs, options, told):
    with pytest.raises(ConfigError, match=told):
        runs(*MAY, *options, "algorithm.aggregation=decision", **GROUPS)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("cluster.deadlines.training.updat=5", "no method 'updat'.*'update'"),
        ("cluster.deadlines.trainin=5", "no such option.*'training'"),
        ("cluster.deadlines.start=0", "greater than 0"),
        ("cluster.restarts.training=1", "no such option"),
        ("cluster.restarts.lost=drip", "'drop'"),
    ],
)
def test_a_misspelt_deadline_is_told_with_near_ones(runs, option, told):
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        runs(option)


def test_deadlines_reach_the_workers(runs):
    with pytest.raises(WorkerFailed, match=r"simulation\[0\].collect.*more than 1 s") as caught:
        runs(
            "cluster.runtime=processes",
            "cluster.deadlines.simulation.collect=1",
            *runs.fail("simulator", 3, "hang"),
        )
    assert "fragile" in caught.value.log


def test_a_plan_with_restarts_is_the_same_but_for_its_calls(toys, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(RUN, sort_keys=False))
    plain, declared = (make_plan(load_run(str(path), options)) for options in ([], MAY))
    assert plain.problems == declared.problems == ()
    assert plain.batch == declared.batch
    assert [t.as_json() for t in plain.transfers] == [t.as_json() for t in declared.transfers]


# --- the real simulator ---------------------------------------------------------------------------


def test_a_real_simulator_goes_back_bit_for_bit(tmp_path):
    """Its worker is killed in the middle; processes of its own hold the environments."""
    robot = {"name": "metaworld", "task": "reach-v3", "processes": 2, "max_episode_steps": 7}
    common = {"steps": 30, "seed": 7, "checkpoint": {"every": 10}}
    may = {"runtime": "processes", "restarts": {"simulation": 3}}
    command = Command(tmp_path, robot, {**common, "cluster": may})
    os.kill(command.named()["simulation[0]"], signal.SIGKILL)
    command.end(90)
    assert command.process.returncode == 0
    path = tmp_path / "straight.yaml"
    path.write_text(yaml.safe_dump({**Command.run(robot), **common, "cluster": {}}))
    straight = train(load_run(str(path)), tmp_path / "straight", False)
    mended = [json.loads(line) for line in command.metrics.read_text().splitlines()]
    assert mended[-1]["metrics"]["failures/restarts"] == 1
    kept = [
        {k: v for k, v in line["metrics"].items() if not k.startswith("failures/")}
        for line in mended
    ]
    lines = straight.metrics.read_text().splitlines()
    assert kept == [json.loads(line)["metrics"] for line in lines]
    there = tmp_path / "run" / "checkpoints" / "step-30" / "training"
    assert {p.name: sha256(p) for p in there.iterdir()} == weights(straight)


def test_a_trainer_is_not_made_anew(toys, tmp_path):
    may = {"runtime": "processes", "restarts": {"simulation": 3, "rollout": 3}}
    command = Command(tmp_path, {"name": "toy", "horizon": 7}, {"cluster": may})
    os.kill(command.named()["training[0]"], signal.SIGKILL)
    said = command.end()
    assert command.process.returncode == 1
    assert "training[0]." in said


def test_one_who_dies_while_others_learn_is_mended_after(toys, tmp_path):
    may = {"runtime": "processes", "restarts": {"simulation": 100, "rollout": 100}}
    slow = {"epochs": 30, "minibatch_size": 4}
    changed = {"cluster": may, "update": slow, "steps": 12}
    command = Command(tmp_path, {"name": "toy", "horizon": 7}, changed)
    for who in ("simulation[0]", "rollout[0]", "simulation[0]"):
        before = command.iterations()
        os.kill(command.named()[who], signal.SIGKILL)
        wait_for(lambda before=before: command.iterations() > before + 1, 30)
    command.end(90)
    assert command.process.returncode == 0
    lines = [json.loads(line) for line in command.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert lines[-1]["metrics"]["failures/restarts"] == 3
