"""Whole runs: PPO on images and an instruction, and what is refused before one starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.errors import RequestError
from rlinf_core.runs.train import train
from rlinf_core.testing import install_plugin

PLACES = ("state", "actions")
TOYS = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

@hookimpl
def rlinf_simulators():
    able = ["state", "images", "instruction", "action-chunk", "success"]
    home = "rlinf_core.testing.toy"
    return [
        ComponentSpec(
            "toy-cameras",
            "A point, seen by two cameras.",
            f"{home}:ToyCameraSimulator",
            config=f"{home}:ToyConfig",
            facts=f"{home}:camera_facts",
            capabilities=able,
        )
    ]
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install a simulator with cameras for this process and its children."""
    install_plugin(tmp_path / "site", "rlinf_plugin_toys_of_pi0", TOYS, monkeypatch)


@pytest.fixture
def run_file(tmp_path, toys, tiny):
    def write(name: str, minibatch: int = 8, **model: object) -> str:
        options = {**tiny, "cameras": ["front", "wrist"], "vision": tiny["vision"], **model}
        options["value_hidden"] = list(options["value_hidden"])
        run = {
            "name": "toy",
            "seed": 1,
            "steps": 2,
            "simulator": {"name": "toy-cameras", "horizon": 6},
            "model": {"name": name, **options},
            "algorithm": {"name": "ppo", "logprob_level": "chunk"},
            "training": {"name": "torch", "threads": 1, "learning_rate": 1e-3},
            "loggers": ["jsonl"],
            "collect": {"envs": 4, "steps": 2, "chunk": 2},
            "update": {"epochs": 1, "minibatch_size": minibatch},
            "checkpoint": {"every": 2, "best": None},
            "evaluation": {"episodes": 2, "video": False},
        }
        path = tmp_path / "toy.yaml"
        path.write_text(yaml.safe_dump(run))
        return str(path)

    return write


def metrics(folder: Path) -> list[dict[str, float]]:
    return [
        json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("name", ["pi0", "pi05"])
def test_case_m07_the_first_ratio_of_a_run_is_1(name, run_file, tmp_path):
    options = {"max_tokens": 80, "value": "expert"} if name == "pi05" else {}
    result = train(load_run(run_file(name, **options)), tmp_path / "out", resume=False)
    assert (result.outcome, result.steps) == ("done", 2)
    first, second = metrics(tmp_path / "out")
    assert first["train/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert first["train/grad_norm"] > 0
    assert second["train/grad_norm"] > 0


@pytest.mark.slow
def test_a_run_in_processes_gives_the_same_numbers(run_file, tmp_path):
    for runtime in ("inline", "processes"):
        overrides = [f"cluster.runtime={runtime}", "evaluation.episodes=1"]
        train(load_run(run_file("pi0"), overrides), tmp_path / runtime, resume=False)
    one, other = (metrics(tmp_path / runtime) for runtime in ("inline", "processes"))
    for name in ("train/loss", "train/grad_norm", "train/ratio", "episode/return"):
        assert [m.get(name) for m in one] == [m.get(name) for m in other], name


def test_case_m01_a_run_without_a_key_is_refused_when_it_is_read(run_file, tmp_path):
    for key in ("libero", "droid"):
        (tmp_path / "assets" / key).mkdir(parents=True)
        content = {vector: {"mean": [0.0, 0.0], "std": [1.0, 1.0]} for vector in PLACES}
        text = json.dumps({"norm_stats": content})
        (tmp_path / "assets" / key / "norm_stats.json").write_text(text)
    place = str(tmp_path / "assets")
    with pytest.raises(RequestError, match=r"statistics of \['droid', 'libero'\]"):
        load_run(run_file("pi0", statistics=place))
    run = load_run(run_file("pi0", statistics=place, unnorm_key="droid"))
    assert run.facts["model"].parameters > 0


def test_case_m06_a_chunk_longer_than_the_horizon_is_refused_when_a_run_is_read(run_file):
    with pytest.raises(RequestError, match="chunk has 2 actions, but the model plans 1"):
        load_run(run_file("pi0", horizon=1))
