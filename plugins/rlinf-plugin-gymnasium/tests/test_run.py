"""A whole run: PPO and a small network on Pendulum, with its evaluation."""

from __future__ import annotations

import json

import pytest
import yaml

from rlinf_core.config.validate import load_plain, load_run, to_plain
from rlinf_core.runs.train import train

RUN = {
    "name": "pendulum",
    "seed": 1,
    "steps": 2,
    "simulator": {"name": "gymnasium", "id": "Pendulum-v1", "max_episode_steps": 8},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 4, "steps": 10, "stages": 2, "chunk": 2},
    "update": {"epochs": 2, "minibatch_size": 20},
    "checkpoint": {"every": 0, "best": None},
    "evaluation": {"episodes": 3, "video": True},
}


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "pendulum.yaml"
    path.write_text(yaml.safe_dump(RUN))
    return str(path)


@pytest.mark.filterwarnings("ignore:.*draws no pictures")  # where pygame is not installed
def test_ppo_trains_on_pendulum(run_file, tmp_path):
    out = tmp_path / "out"
    result = train(load_run(run_file), out, resume=False)
    assert (result.outcome, result.steps, result.env_steps) == ("done", 2, 2 * 4 * 10 * 2)
    assert result.evaluation.initial_states == ["test/0", "test/1", "test/2"]
    assert result.evaluation.length_mean == 8
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[-1]["metrics"]["episode/length"] == 8
    assert lines[-1]["metrics"]["episode/return"] < 0


def test_a_stored_run_is_the_same_run(run_file):
    run = load_run(run_file)
    assert to_plain(load_plain(to_plain(run))) == to_plain(run)
    assert run.facts["model"].parameters == 4 * 16 + 17 * 2 + 2 + 4 * 16 + 17
