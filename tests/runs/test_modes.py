"""Collocated, apart and pipelined; in one process or many; ahead of learning; piece by piece."""

from __future__ import annotations

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError, WorkerFailed
from rlinf_core.flow.arrange import arranged
from rlinf_core.flow.timeline import read_timeline
from rlinf_core.runs.embodied import EmbodiedRun
from rlinf_core.runs.session import open_runtime
from rlinf_core.runs.train import train
from rlinf_core.runs.workers import training

RUN = {
    "name": "modes", "seed": 5, "steps": 2,
    "simulator": {"name": "toy-shared", "horizon": 3},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 8, "steps": 4},
    "update": {"epochs": 2, "minibatch_size": 8},
    "checkpoint": {"every": 0},
    "evaluation": {"episodes": 5, "video": False},
    "cluster": {"devices": "4 x cpu"},
}  # fmt: skip

GROUPS = {"algorithm": {"name": "grpo", "group_size": 2, "aggregation": "decision"}}

MODES = {
    "collocated": {},
    "collocated in turns": {"cluster": {"devices": "2 x cpu", "sharing": "turns"}},
    "disaggregated": {"placement": {"simulation": "0", "rollout": "1", "training": "2"}},
    "hybrid, all learn": {
        "placement": {"simulation": "0-1", "rollout": "2-3", "training": "all"},
        "collect": {"envs": 8, "steps": 4, "stages": 2},
    },
    "groups": GROUPS,
    "groups, streamed": {
        **GROUPS,
        "collect": {"envs": 8, "steps": 4, "stages": 2},
        "update": {"epochs": 2, "minibatch_size": 16, "streaming": True},
        "placement": {"simulation": "0", "rollout": "1", "training": "2"},
    },
    "ahead of learning": {
        "steps": 4,
        "algorithm": {"name": "ppo", "decoupled": True},
        "collect": {"envs": 8, "steps": 4, "max_staleness": 2},
        "placement": {"simulation,rollout": "0-1", "training": "2"},
    },
}


@pytest.fixture
def load(tmp_path, toys):
    def load(*overrides, **changes):
        path = tmp_path / "modes.yaml"
        path.write_text(yaml.safe_dump(RUN | changes, sort_keys=False))
        return load_run(str(path), overrides)

    return load


def lines(folder):
    told = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in told]


def outcome(run, folder):
    result = train(run, folder, resume=False)
    weights = load_file(result.checkpoint / "training" / "model.safetensors")
    return lines(folder), weights, result.evaluation


@pytest.mark.parametrize("mode", MODES)
def test_both_runtimes_come_to_the_same_bits(load, tmp_path, mode):
    here = outcome(load(**MODES[mode]), tmp_path / "inline")
    there = outcome(load("cluster.runtime=processes", **MODES[mode]), tmp_path / "processes")
    assert here[0] == there[0]
    assert here[2] == there[2]
    assert here[1].keys() == there[1].keys()
    assert all(torch.equal(tensor, there[1][name]) for name, tensor in here[1].items())


@pytest.mark.parametrize("runtime", ["inline", "processes"])
def test_every_weight_transport_comes_to_the_same_bits(load, tmp_path, runtime):
    changes = {"placement": {"simulation": "0-1", "rollout": "2-3", "training": "all"}}

    def told(name, **options):
        run = load(f"cluster.runtime={runtime}", weights={"name": name, **options}, **changes)
        metrics, weights, evaluation = outcome(run, tmp_path / "-".join([name, *options]))
        return metrics, {n: t.tolist() for n, t in weights.items()}, evaluation

    full = told("full")
    assert told("bucketed", bucket_mib=1) == full
    assert told("changed") == full
    if runtime == "processes":
        assert told("full", way="gloo") == full


def test_a_run_ahead_of_learning_may_wait_for_its_receivers(load, tmp_path):
    mode = MODES["ahead of learning"]
    full = outcome(load(**mode), tmp_path / "full")
    for runtime in ("inline", "processes"):
        run = load(f"cluster.runtime={runtime}", weights="changed", **mode)
        assert outcome(run, tmp_path / runtime)[0] == full[0]


@pytest.mark.parametrize("name", ["full", "bucketed", "changed"])
def test_case_w08_versions_go_on_after_a_resume(load, tmp_path, name):
    folder = tmp_path / "run"

    def versions():
        calls = read_timeline(folder / "timeline.json").calls
        return [c.details["version"] for c in calls if c.name == "receive_weights"]

    train(load("steps=2", weights=name), folder, resume=False)
    assert versions() == [0, 1, 2]
    train(load("steps=4", weights=name), folder, resume=True)
    # The resumed process makes the policy anew, then loads the checkpoint and goes on.
    assert versions() == [0, 1, 2, 0, 2, 3, 4]


def test_sending_weights_shows_in_the_timeline_and_in_the_metrics(load, tmp_path):
    changes = {"placement": {"simulation": "0", "rollout": "1", "training": "2-3"}}
    result = train(load("cluster.runtime=processes", **changes), tmp_path / "out", resume=False)
    assert result.last_metrics["time/weight_sync_s"] > 0
    calls = read_timeline(tmp_path / "out" / "timeline.json").calls
    for name in ("send_weights", "receive_weights"):
        found = [call for call in calls if call.name == name]
        assert [c.details["version"] for c in found if c.worker.endswith("[0]")] == [0, 1, 2]
        assert sum(call.details["bytes"] for call in found) > 0
        assert any(i[:2] == ("transfer", "weights") for call in found for i in call.within)


# --- by turns -------------------------------------------------------------------------------------


def test_groups_of_a_run_leave_their_device_to_others_and_come_back(load, tmp_path):
    changes = {"cluster": {"devices": "1 x cpu", "sharing": "turns", "runtime": "processes"}}
    train(load(**changes), tmp_path / "turns", resume=False)
    timeline = read_timeline(tmp_path / "turns" / "timeline.json")
    switches = [i for call in timeline.calls for i in call.within if i[0] == "switch"]
    assert {name for _, name, _, _ in switches} == {"onload", "offload"}
    kinds = {call.worker.partition("[")[0] for call in timeline.calls}
    assert {"simulation", "rollout", "training"} <= kinds


@pytest.mark.parametrize("line", ["0:2", "0-1"])
def test_several_training_processes_cannot_take_turns(load, line):
    run = load("cluster.sharing=turns", placement={"simulation,rollout": "0-1", "training": line})
    with pytest.raises(ConfigError, match="2 training processes would take turns on cpu"):
        train(run, None, resume=False)


# --- ahead of learning ----------------------------------------------------------------------------


def test_weights_that_act_lag_behind_by_no_more_than_the_run_allows(load, tmp_path):
    changes = MODES["ahead of learning"] | {"steps": 6, "checkpoint": {"every": 4}}
    told, _, _ = outcome(load(**changes), tmp_path / "out")
    # Ahead by two, but over no checkpoint: the fifth begins with the weights of the fourth.
    assert [line["train/staleness"] for line in told] == [0, 1, 2, 2, 0, 1]


def test_without_staleness_every_row_is_of_the_newest_weights(load, tmp_path):
    told, _, _ = outcome(load("steps=3"), tmp_path / "out")
    assert [line["train/staleness"] for line in told] == [0, 0, 0]


def test_a_channel_refuses_rows_of_weights_older_than_the_run_allows(load, monkeypatch):
    """As if the flow had a fault, and went on collecting without the new weights."""
    run = load()
    monkeypatch.setattr(EmbodiedRun, "_sync_weights", lambda self: None)
    with open_runtime(run) as runtime:
        embodied = EmbodiedRun(run, runtime, print)
        sent = embodied._training.call("send_weights")
        embodied._rollout.call("receive_weights").wait()
        sent.wait()
        embodied.iterate()
        with pytest.raises(WorkerFailed, match="weights 0; the newest are 1 and at most 0 behind"):
            embodied.iterate()


def test_case_r05_an_asynchronous_run_ends_after_its_last_step(load, tmp_path):
    result = train(load(**MODES["ahead of learning"]), tmp_path / "out", resume=False)
    assert (result.outcome, result.steps) == ("done", 4)
    assert len(lines(tmp_path / "out")) == 4
    assert result.env_steps == 4 * 8 * 4, "nothing was collected in vain"


def test_case_c02_an_asynchronous_run_resumes_exactly(load, tmp_path):
    changes = MODES["ahead of learning"] | {"checkpoint": {"every": 2}}
    straight = outcome(load(**changes), tmp_path / "straight")
    train(load("steps=2", **changes), tmp_path / "halves", resume=False)
    train(load(**changes), tmp_path / "halves", resume=True)
    assert lines(tmp_path / "halves") == straight[0]


def test_the_decoupled_loss_equals_the_plain_one_where_nothing_is_stale(load, tmp_path):
    plain, _, _ = outcome(load("steps=1", "update.epochs=1"), tmp_path / "plain")
    decoupled, _, _ = outcome(
        load("steps=1", "update.epochs=1", "algorithm.decoupled=true"), tmp_path / "decoupled"
    )
    for name, value in plain[0].items():
        assert decoupled[0][name] == pytest.approx(value, rel=1e-5, abs=1e-7), name


# --- piece by piece -------------------------------------------------------------------------------


def test_case_n11_learning_begins_with_whole_groups_while_others_act(load, tmp_path, monkeypatch):
    seen = []
    real = training.TrainingWorker._epoch

    def spy(self, rows, envs, learning):
        seen.append((learning.epoch, envs, rows["env"][0].tolist()))
        real(self, rows, envs, learning)

    monkeypatch.setattr(training.TrainingWorker, "_epoch", spy)
    train(load("steps=1", **MODES["groups, streamed"]), tmp_path / "out", resume=False)
    first, second, whole = seen
    assert first == (0, range(4), [0, 1, 2, 3])
    assert second == (1, range(4, 8), [4, 5, 6, 7])
    assert whole[1:] == (range(8), list(range(8)))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "compares all environments with one another"),
        (
            {**GROUPS, "placement": {"simulation,rollout": "0", "training": "0-1"}},
            "with 2 training processes, of which all but one would wait",
        ),
        (
            {**GROUPS, "collect": {"envs": 8, "steps": 4, "stages": 4}},
            "the 8 rows of each of 4 stages are no multiple of update.minibatch_size=16",
        ),
    ],
)
def test_streaming_is_refused_where_it_would_change_advantages_or_split(load, changes, told):
    run = {"update": {"epochs": 1, "minibatch_size": 16, "streaming": True}} | changes
    with pytest.raises(ConfigError) as caught:
        arranged(load(**run))
    assert told in str(caught.value)


# --- the timeline ---------------------------------------------------------------------------------


def test_a_timeline_that_cannot_be_written_stops_no_run(load, tmp_path, capsys):
    folder = tmp_path / "out"
    run = load("steps=2", "loggers=[console, jsonl]")

    def full(self, spans):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlinf_core.flow.timeline.TimelineWriter.write", full)
        result = train(run, folder, resume=False)
    assert result.outcome == "done"
    assert capsys.readouterr().err.count("the timeline ends here") == 1


def test_calls_in_the_timeline_carry_the_version_of_the_weights(load, tmp_path):
    train(load("steps=3"), tmp_path / "out", resume=False)
    calls = read_timeline(tmp_path / "out" / "timeline.json").calls
    for name in ("serve", "update"):
        found = [call.details["version"] for call in calls if call.name == name]
        assert found == [0, 1, 2]
