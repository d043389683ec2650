"""A whole run, and its resume, with two loggers at once."""

from __future__ import annotations

import json

import pytest
from rlinf_plugin_tensorboard.config import TensorBoardConfig
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlinf_core.config.validate import load_run
from rlinf_core.runs.train import Loggers, RunInfo

RUN = """
name: small
steps: 3
simulator: {name: metaworld, max_episode_steps: 5}
model: mlp
algorithm: ppo
training: torch
loggers: [jsonl, tensorboard]
"""


def test_case_l03_two_loggers_write_each_metric_once(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(RUN)
    run = load_run(str(path))
    for first_step, steps in ((0, (1, 2)), (1, (2, 3))):  # the second time it resumes after 1
        loggers = Loggers(run)
        loggers.message("early")
        loggers.open(RunInfo(run.config.name, tmp_path, {"seed": 0}, first_step, 3))
        for step in steps:
            loggers.log(step, {"a": float(step), "b": float("nan"), "time/c": 0.5})
        loggers.close("done")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(e.step, e.value) for e in events.Scalars("a")] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [(line["step"], line["metrics"]["a"]) for line in lines] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
    ]
    assert events.Tags()["scalars"] == ["a", "time/c"]


def test_a_run_checks_its_options(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(RUN.replace("[jsonl, tensorboard]", "[{name: tensorboard, folder: tb}]"))
    assert load_run(str(path)).loggers[0].config == TensorBoardConfig(folder="tb")
    path.write_text(RUN.replace("[jsonl, tensorboard]", "[{name: tensorboard, folda: tb}]"))
    with pytest.raises(Exception, match="folda"):
        load_run(str(path))
