"""Whole runs: PPO on images and an instruction, and what is refused before one starts."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.errors import RequestError
from rlinf_core.runs.train import train
from rlinf_core.testing import install_plugin

TOYS = """
from rlinf_core.api import ComponentSpec, hookimpl

@hookimpl
def rlinf_simulators():
    home = "rlinf_core.testing.toy"
    return [
        ComponentSpec(
            "toy-cameras",
            "A point, seen by two cameras.",
            f"{home}:ToyCameraSimulator",
            config=f"{home}:ToyConfig",
            facts=f"{home}:camera_facts",
            capabilities=["state", "images", "instruction", "action-chunk", "success"],
        )
    ]
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install a simulator with cameras for this process and its children."""
    install_plugin(tmp_path / "site", "rlinf_plugin_toys_of_openvla", TOYS, monkeypatch)


@pytest.fixture
def write_run(tmp_path, toys, tiny):
    """Return a function that writes a run on a checkpoint for the toy's two actions."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["norm_stats"] = {
        key: {"action": {"q01": [-1, -1], "q99": [1, 1]}} for key in ("left", "right")
    }
    (folder / "config.json").write_text(json.dumps(config))

    def write(**model: object) -> str:
        options = {
            "checkpoint": str(folder),
            "dtype": "float32",
            "prompt_suffix_ids": [5],
            "prompt_length": 32,
            "trained_chunk": 2,
            "cameras": ["front"],
            "unnorm_key": "left",
        }
        run = {
            "name": "toy",
            "seed": 1,
            "steps": 2,
            "simulator": {"name": "toy-cameras", "horizon": 6},
            "model": {"name": "openvla", **options, **model},
            "algorithm": {"name": "ppo", "logprob_level": "token"},
            "training": {"name": "torch", "threads": 1, "learning_rate": 1e-3},
            "loggers": ["jsonl"],
            "collect": {"envs": 4, "steps": 2, "chunk": 2},
            "update": {"epochs": 1, "minibatch_size": 8},
            "checkpoint": {"every": 2, "best": None},
            "evaluation": {"episodes": 2, "video": False},
        }
        path = tmp_path / "toy.yaml"
        path.write_text(yaml.safe_dump(run))
        return str(path)

    return write


def test_case_m07_the_first_ratio_of_a_run_is_1(write_run, tmp_path):
    result = train(load_run(write_run()), tmp_path / "out", resume=False)
    assert (result.outcome, result.steps) == ("done", 2)
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["metrics"] for line in lines)
    assert first["train/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert first["train/grad_norm"] > 0
    assert second["train/grad_norm"] > 0
    assert second["train/loss"] != first["train/loss"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unnorm_key": None}, r"no key was given.*\['left', 'right'\]"),
        ({"trained_chunk": 8}, "chunks of 8 actions, and the run has chunks of 2"),
        ({"cameras": []}, r"shows images of \['front', 'wrist'\]"),
        ({"value_head": False}, "needs 'value' of the model"),
    ],
    ids=["m01", "m06", "cameras", "critic"],
)
def test_what_does_not_fit_is_refused_when_a_run_is_read(options, says, write_run):
    with pytest.raises(RequestError, match=says):
        load_run(write_run(**options))
