"""Runs whose algorithm compares groups: one state per group and rollout, never split, resumable."""

from __future__ import annotations

import json

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.errors import RequestError
from rlinf_core.files import sha256
from rlinf_core.runs.train import train
from rlinf_core.runs.workers import training

RUN = {
    "name": "groups", "seed": 7, "steps": 4,
    "simulator": {"name": "toy-shared", "horizon": 3},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "grpo", "group_size": 4},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 8, "steps": 5, "stages": 2},
    "update": {"epochs": 2, "minibatch_size": 20, "microbatch_size": 7},
    "checkpoint": {"every": 2, "best": None},
    "evaluation": {"episodes": 3, "video": False},
}  # fmt: skip


@pytest.fixture
def write(tmp_path, toys):
    def write(**changes):
        path = tmp_path / "groups.yaml"
        path.write_text(yaml.safe_dump(RUN | changes))
        return str(path)

    return write


@pytest.fixture
def rollouts(monkeypatch):
    """Every rollout that is trained on, and every minibatch."""
    rollouts, minibatches = [], []
    prepare, real = training.TrainingWorker._prepare, training.TrainingWorker._minibatches

    def spy_prepare(self, trajectory):
        rollouts.append(prepare(self, trajectory))
        return rollouts[-1]

    def spy(self, *args):
        for minibatch in real(self, *args):
            minibatches.append(minibatch)
            yield minibatch

    monkeypatch.setattr(training.TrainingWorker, "_prepare", spy_prepare)
    monkeypatch.setattr(training.TrainingWorker, "_minibatches", spy)
    return rollouts, minibatches


def test_case_n11_groups_share_a_state_and_are_never_split(write, rollouts, tmp_path):
    train(load_run(write()), tmp_path / "out", resume=False)
    whole, minibatches = rollouts
    assert len(whole) == 4
    starts = []
    for rows in whole:
        first = rows["obs"]["state"][0]  # [N, S] at the first step
        assert (first[:4] == first[0]).all()
        assert (first[4:] == first[4]).all()
        assert (first[:, 1] == 0).all()  # nobody has taken a step
        starts.append((float(first[0, 0]), float(first[4, 0])))
        valid = rows["valid"][..., 0]  # [T, N]
        assert valid[:3].all()  # horizon 3: then it waits
        assert not valid[3:].any()
    assert len(set(starts)) > 1
    assert len(minibatches) == 4 * 2 * 2
    for part in minibatches:
        assert len(part) == 20
        envs = part["env"].unique().tolist()
        assert envs in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_case_c02_two_steps_and_two_more_are_four(write, tmp_path):
    straight, halves = tmp_path / "a", tmp_path / "b"
    train(load_run(write()), straight, resume=False)
    train(load_run(write(), ["steps=2"]), halves, resume=False)
    train(load_run(write()), halves, resume=True)

    def digest(folder):
        return sha256(folder / "checkpoints" / "step-4" / "training" / "model.safetensors")

    def lines(folder):
        told = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["metrics"] for line in told]

    assert digest(straight) == digest(halves)
    assert lines(straight) == lines(halves)


@pytest.mark.parametrize(
    ("override", "told"),
    [("collect.envs=12", "collect.envs=8 or 16"),
     ("update.minibatch_size=30", "update.minibatch_size=20 or 40"),
     ("algorithm.group_size=1", "a group of 1 compares"),
     ("simulator.name=toy", "shared-states")],
)  # fmt: skip
def test_case_k01_what_would_split_a_group_is_refused(write, override, told):
    with pytest.raises(RequestError) as caught:
        load_run(write(), [override])
    assert told in str(caught.value)
