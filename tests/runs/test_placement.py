"""Runs over several processes and stages: who runs where changes no number."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError
from rlinf_core.flow.arrange import arrange, arranged
from rlinf_core.runs.embodied import EmbodiedRun
from rlinf_core.runs.session import open_runtime
from rlinf_core.runs.train import train
from rlinf_core.runs.workers import training

RUN = {
    "name": "places", "seed": 5, "steps": 2,
    "simulator": {"name": "toy-shared", "horizon": 3},
    "model": "toy",
    "algorithm": "ppo",
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 8, "steps": 4},
    "update": {"epochs": 2, "minibatch_size": 8, "microbatch_size": 3},
    "checkpoint": {"every": 0},
    "evaluation": {"episodes": 5, "video": False},
    "cluster": {"devices": "4 x cpu"},
}  # fmt: skip

LAYOUTS = {
    "two stages": {"collect": {"envs": 8, "steps": 4, "stages": 2}},
    "two simulation processes": {
        "placement": {"simulation": "0-1", "rollout": "0", "training": "0"}
    },
    "apart": {"placement": {"simulation": "0", "rollout": "1", "training": "2"}},
    "two and two, with stages": {
        "placement": {"simulation": "0-1", "rollout": "2-3", "training": "all:1"},
        "collect": {"envs": 8, "steps": 4, "stages": 2},
    },
    "several processes per device": {
        "placement": {"simulation": "0:4", "rollout": "1:2", "training": "2"}
    },
    "more rollout than simulation": {
        "placement": {"simulation": "0", "rollout": "1-2", "training": "3"}
    },
}


@pytest.fixture
def load(tmp_path, toys):
    def load(*overrides, **changes):
        path = tmp_path / "places.yaml"
        path.write_text(yaml.safe_dump(RUN | changes, sort_keys=False))
        return load_run(str(path), overrides)

    return load


@pytest.fixture
def batches(monkeypatch):
    """Every rollout that is trained on."""
    seen = []
    real = training.TrainingWorker._prepare

    def spy(self, trajectory):
        seen.append(real(self, trajectory))
        return seen[-1]

    monkeypatch.setattr(training.TrainingWorker, "_prepare", spy)
    return seen


def outcome(run, folder):
    result = train(run, folder, resume=False)
    numbers = {k: v for k, v in result.last_metrics.items() if not k.startswith("time/")}
    weights = load_file(result.checkpoint / "training" / "model.safetensors")
    return numbers, weights, result.evaluation


def test_who_runs_where_changes_no_number(load, tmp_path, batches):
    numbers, weights, evaluation = outcome(load(), tmp_path / "plain")
    plain = list(batches)
    assert float(weights["gain"]) != 1.0, "something was learned"
    for name, changes in LAYOUTS.items():
        batches.clear()
        found = outcome(load(**changes), tmp_path / name)
        for mine, theirs in zip(plain, batches, strict=True):
            for (path, one), (_, other) in zip(mine.leaves(), theirs.leaves(), strict=True):
                assert torch.equal(one, other), (name, path)
        assert found[0] == numbers, name
        assert torch.equal(found[1]["gain"], weights["gain"]), name
        assert found[2] == evaluation, name


RANKS = {
    "two training processes": {"placement": {"simulation": "0", "rollout": "0", "training": "0-1"}},
    "three training processes, of unequal shares": {
        "placement": {"simulation": "0-1", "rollout": "2", "training": "1-3"},
        "update": {"epochs": 2, "minibatch_size": 9, "microbatch_size": 3},
    },
    "eight, most without rows in a minibatch": {
        "placement": {"simulation": "0", "rollout": "0", "training": "all:8"},
        "update": {"epochs": 2, "minibatch_size": 8},
    },
}
"""Sums are in another order, so these agree but for rounding."""


@pytest.mark.parametrize("changes", [pytest.param(c, id=n) for n, c in RANKS.items()])
def test_how_many_processes_learn_changes_no_number_but_for_rounding(load, tmp_path, changes):
    model = {"name": "mlp", "hidden": [16]}
    one = {k: v for k, v in changes.items() if k != "placement"}
    plain, weights, _ = outcome(load("steps=1", model=model, **one), tmp_path / "plain")
    numbers, others, _ = outcome(load("steps=1", model=model, **changes), tmp_path / "ranks")
    assert numbers == pytest.approx(plain, rel=1e-4, abs=1e-6)
    for key, tensor in weights.items():
        torch.testing.assert_close(others[key], tensor, rtol=1e-5, atol=1e-6)


def test_one_update_agrees_whatever_the_shapes_of_its_pieces(load, tmp_path):
    """A matrix product may differ in its last bit with the number of rows."""
    runs = [load("steps=1", model={"name": "mlp", "hidden": [16]}, **c) for c in LAYOUTS.values()]
    plain, weights, _ = outcome(
        load("steps=1", model={"name": "mlp", "hidden": [16]}), tmp_path / "plain"
    )
    for name, run in zip(LAYOUTS, runs, strict=True):
        numbers, others, _ = outcome(run, tmp_path / name)
        assert numbers == pytest.approx(plain, rel=1e-4, abs=1e-6), name
        for key, tensor in weights.items():
            torch.testing.assert_close(others[key], tensor, rtol=1e-4, atol=1e-6)


def test_case_e07_two_processes_with_two_stages_have_disjoint_streams_of_known_environments(
    load, tmp_path, batches
):
    train(load(**LAYOUTS["two and two, with stages"]), tmp_path / "out", resume=False)
    for number, rows in enumerate(batches):
        env, step = rows["env"].reshape(4, 8), rows["step"].reshape(4, 8)
        assert (env == torch.arange(8)).all(), "in the order of environments"
        assert (step == torch.arange(4)[:, None] + 4 * number).all()
        noise = rows["replay"]["noise"]
        assert len(set(noise.flatten().tolist())) == 32, "no two rows drew the same"


@pytest.mark.parametrize("layout", ["two simulation processes", "two and two, with stages"])
def test_case_n11_a_group_is_never_split_over_processes_and_stages(load, layout, batches, tmp_path):
    changes = LAYOUTS[layout] | {
        "algorithm": {"name": "grpo", "group_size": 2},
        "model": {"name": "mlp", "hidden": [8]},
    }
    run = load(**changes)
    assert 8 // (2 * 2 * arranged(run).stages) >= 1
    train(run, tmp_path / "out", resume=False)
    for rows in batches:
        first = rows["obs"]["state"][0]  # [N, S] at the first step
        assert torch.equal(first[::2], first[1::2]), "both members start from one state"
    changes |= {"algorithm": {"name": "grpo", "group_size": 8}, "update": {"minibatch_size": 32}}
    split = load("collect.stages=1", **changes)
    with pytest.raises(ConfigError, match="not whole groups of algorithm.group_size=8"):
        arranged(split)


# --- what is chosen, and what is refused ----------------------------------------------------------


def test_without_a_placement_each_group_is_one_process_with_all_devices(load):
    arrangement = arranged(load())
    assert {len(group) for group in arrangement.groups.values()} == {1}
    assert arrangement.groups["rollout"][0].devices == arrangement.devices
    assert len(arrangement.devices) == 4
    assert arrangement.stages == 1


@pytest.mark.parametrize(
    ("collect", "placement", "stages"),
    [
        ({}, {"simulation": "0", "rollout": "1", "training": "2"}, 2),
        ({}, {"simulation": "0", "rollout": "0", "training": "2"}, 1),
        ({"envs": 7}, {"simulation": "0", "rollout": "1", "training": "2"}, 1),
        ({"envs": 6}, {"simulation": "0-1", "rollout": "2", "training": "2"}, 1),
        ({"envs": 8}, {"simulation": "0-1", "rollout": "2-3", "training": "2"}, 2),
        ({"envs": 8}, {"simulation": "0", "rollout": "1-3", "training": "2"}, 4),
        ({"envs": 8, "stages": 1}, {"simulation": "0", "rollout": "1", "training": "2"}, 1),
    ],
)
def test_stages_are_chosen_by_who_has_devices_of_its_own(load, collect, placement, stages):
    run = load(collect={"envs": 8, "steps": 4} | collect, placement=placement)
    assert arranged(run).stages == stages


def refused(run):
    _, problems = arrange(run)
    assert problems
    with pytest.raises(ConfigError) as caught, open_runtime(run) as runtime:
        EmbodiedRun(run, runtime, print)
    assert caught.value.findings == tuple(map(str, problems)), "both say the same"
    return problems


def test_training_in_several_processes_needs_a_backend_that_can(load):
    (problem,) = refused(
        load("placement={simulation: 0, rollout: 0, training: all}", training="solo")
    )
    assert str(problem) == (
        "command line: placement.training: training in 4 processes needs the capability "
        "'distributed', which the training-backend 'solo' (from rlinf-plugin-toys) does not "
        "declare, wanted one process that has all the devices, training: all:1, here "
        "placement.training=all:1"
    )
    assert problem.suggestions == ("placement.training=all:1",)


def test_a_device_that_is_not_there_has_the_line_that_names_it(load):
    (problem,) = refused(load(placement={"simulation": "7", "rollout": "0", "training": "0"}))
    place, _, line = problem.origin.rpartition(":")
    assert "simulation: '7'" in Path(place).read_text().splitlines()[int(line) - 1]
    assert problem.text.startswith("there is no device 7; this run has 4: cpu:0, cpu:1")


def test_a_component_without_a_place(load):
    (problem,) = refused(load(placement={"simulation": "0", "rollout": "0"}))
    assert problem.text.startswith("training has no place; found one for simulation and rollout")
    run = load(placement={"simulation": "0", "rollout": "0"})
    sections = {"simulator", "model", "rollout", "weights"}
    evaluated = load_run(str(run.path), [], sections=sections)
    assert set(arranged(evaluated).groups) == {"simulation", "rollout"}


def test_case_k01_one_environment_and_four_workers(load):
    (problem,) = refused(
        load(
            "collect.envs=1",
            "update.minibatch_size=4",
            placement={"simulation": "0-3", "rollout": "0", "training": "0"},
        )
    )
    assert problem.origin == "command line"
    assert problem.text == (
        "collect.envs=1 cannot be split evenly over 4 simulation processes, wanted collect.envs=4, "
        "or placement.simulation=0-3:1"
    )


def test_node_groups_without_a_placement(load):
    groups = {"left": {"devices": "cpu"}, "right": {"devices": "2 x cpu"}}
    (problem,) = refused(load(cluster={"node_groups": groups}))
    assert problem.text.startswith("the run has several node groups, and nothing says who goes")
    one = {"left": {"devices": "2 x cpu", "environment": {"A": "b"}}}
    arrangement = arranged(load(cluster={"node_groups": one}))
    assert arrangement.groups["rollout"][0].environment == {"A": "b"}


def test_an_accelerator_that_this_machine_has_not(load):
    (problem,) = refused(load("cluster.devices='2 x cuda'"))
    assert problem.path == "cluster.devices"
    assert problem.text.startswith("2 x cuda, but this machine has ")
