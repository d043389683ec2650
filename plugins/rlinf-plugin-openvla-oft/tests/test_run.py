"""Whole runs: GRPO on images, state and an instruction, and what is refused before one starts."""

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
            capabilities="state images instruction action-chunk success shared-states".split(),
        )
    ]
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install a simulator with cameras for this process and its children."""
    install_plugin(tmp_path / "site", "rlinf_plugin_toys_of_openvla_oft", TOYS, monkeypatch)


@pytest.fixture
def write_run(tmp_path, toys, tiny):
    """Return a function that writes a run on a checkpoint for the toy's two actions."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    bounds = {"q01": [-1, -1], "q99": [1, 1]}
    config["norm_stats"] = {"toy": {"action": bounds, "proprio": bounds}}
    (folder / "config.json").write_text(json.dumps(config))

    def write(**model: object) -> str:
        options = {
            "checkpoint": str(folder),
            "dtype": "float32",
            "prompt_suffix_ids": [5],
            "prompt_length": 32,
            "trained_chunk": 2,
            "cameras": ["front", "wrist"],
            "stop_token": False,
            "value_head": False,
        }
        run = {
            "name": "toy",
            "seed": 1,
            "steps": 2,
            "simulator": {"name": "toy-cameras", "horizon": 6},
            "model": {"name": "openvla-oft", **options, **model},
            "algorithm": {"name": "grpo", "group_size": 2, "logprob_level": "token"},
            "training": {"name": "torch", "threads": 1, "learning_rate": 1e-3},
            "loggers": ["jsonl"],
            "collect": {"envs": 4, "steps": 3, "chunk": 2},
            "update": {"epochs": 1, "minibatch_size": 12},
            "checkpoint": {"every": 2, "best": None},
            "evaluation": {"episodes": 2, "video": False},
        }
        path = tmp_path / "toy.yaml"
        path.write_text(yaml.safe_dump(run))
        return str(path)

    return write


@pytest.mark.parametrize("stop_token", [False, True])
def test_case_m07_the_first_ratio_of_a_run_is_1(stop_token, write_run, tmp_path):
    path = write_run(stop_token=stop_token, temperature=1.6)
    result = train(load_run(path), tmp_path / "out", resume=False)
    assert (result.outcome, result.steps) == ("done", 2)
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["metrics"] for line in lines)
    assert first["train/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert first["train/grad_norm"] > 0
    assert second["train/grad_norm"] > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unnorm_key": "libero"}, r"no statistics have the key 'libero'.*\['toy'\]"),
        ({"trained_chunk": 8}, "chunks of 8 actions, and the run has chunks of 2"),
        ({"head": "l1"}, "'logprob'"),
    ],
    ids=["m01", "m06", "l1"],
)
def test_what_does_not_fit_is_refused_when_a_run_is_read(options, says, write_run):
    with pytest.raises(RequestError, match=says):
        load_run(write_run(**options))
