"""The benchmarks run at their smallest, and say what they measured. Nothing here asserts a time."""

from __future__ import annotations

import json
import math
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

OPTIONS = {
    "envs": 2, "steps": 4, "epochs": 1, "minibatch": 8, "hidden": [8], "log_std_init": 0.0,
    "gamma": 0.95, "gae_lambda": 0.95, "clip_ratio": 0.2, "value_coefficient": 0.5,
    "learning_rate": 1e-3, "max_grad_norm": 0.5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def importable(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def bench(monkeypatch: Any, tmp_path: Path) -> Any:
    """Return a function that makes a Bench whose files lie in a folder of the test."""
    from benchmarks import bench as module

    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return lambda **settings: module.Bench("toy", "A toy", False, 3, settings)


def run(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_benchmark_can_be_called() -> None:
    import importlib

    from benchmarks import suite

    names = [module.name for module in pkgutil.iter_modules(suite.__path__)]
    assert len(names) == 10
    for name in names:
        assert callable(importlib.import_module(f"benchmarks.suite.{name}").measure)


def test_listing_runs_and_writes_its_result() -> None:
    path = run("benchmarks", "listing", "--quick").strip()
    result = json.loads(Path(path).read_text(encoding="utf-8"))
    assert result["quick"]
    assert result["settings"]["distributions"] == 5
    first = result["comparisons"][0]
    assert first["ratios"] == [first["ours"][0] / first["others"][0]]
    assert result["commit"]
    assert result["versions"]["ours"]["rlinf-core"]


def test_listing_lists_what_it_installed(tmp_path: Path) -> None:
    from benchmarks.bench import environment
    from benchmarks.suite.listing import make_site

    site = make_site(tmp_path / "site", 3)
    done = subprocess.run(
        [sys.executable, "-c", "from rlinf_core.cli import main; main()", "plugins", "list"],
        env=environment(PYTHONPATH=str(site)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(f"dummy-0{number}" in done.stdout for number in range(3))


def test_our_functions_agree_with_the_yardstick() -> None:
    from benchmarks.kernels import cases

    found = json.loads(run("benchmarks.kernels.run", "ours", "--quick"))
    measured = {tuple(key.split("/")) for key in found}
    wanted = {
        (case, size, way)
        for case, sizes in cases.CASES.items()
        for size in sizes
        for way in (("forward", "backward") if case in cases.BACKWARD else ("forward",))
    }
    assert measured == wanted


def test_a_wrong_function_is_found_out() -> None:
    import numpy as np

    from benchmarks.kernels.run import _agree

    with pytest.raises(SystemExit, match="not what the yardstick gives"):
        _agree("ppo", np.array([1.0, 2.0]), np.array([1.0, 2.1]))


def test_the_single_file_peer_learns_and_tells() -> None:
    told = run("benchmarks.peers.single_file_ppo", "reach", "16", "0", json.dumps(OPTIONS))
    summary = json.loads(told.splitlines()[-1])
    assert summary["steps"] == 16
    assert summary["goal_steps"] is None


def test_our_simulator_is_measured_alone_and_in_a_run() -> None:
    from benchmarks import ours

    small = ["collect.envs=2", "simulator.processes=1"]
    assert ours.raw("reach", 1, 4, small) > 0
    few = ["collect.steps=4", "update.minibatch_size=8", "update.epochs=1"]
    trained = ours.train("reach", 2, 0, *small, *few, "evaluation.episodes=1")
    assert trained["steps"] == 16
    assert trained["collect_steps_per_s"] > 0


def test_arrays_are_handed_over_and_copied() -> None:
    from benchmarks.channels import SIZES

    found = json.loads(run("benchmarks.channels.ours", "--quick"))
    assert found["exchange"].keys() == found["copy"].keys() == SIZES.keys()
    assert all(0 < seconds < 60 for part in found.values() for seconds in part.values())
    assert found["copy"]["64 MiB"] > found["copy"]["1 KiB"]


def test_weights_are_sent_in_every_case_and_by_the_peer_that_needs_no_installation() -> None:
    from benchmarks.weights import adapted, shapes
    from benchmarks.weights.ours import CASES

    found = json.loads(run("benchmarks.weights.ours", "--quick"))
    assert found["update"].keys() == found["copy"].keys() == CASES.keys()
    assert all(0 < seconds < 60 for part in found.values() for seconds in part.values())
    assert 0 < json.loads(run("benchmarks.weights.peer_torch", "--quick")) < 60
    assert sum(4 * math.prod(shape) for shape in shapes(False).values()) == 256 * 2**20 + 14 * 8192
    share = sum(math.prod(shapes(False)[name]) for name in adapted(False)) / (64 * 2**20)
    assert 0.01 < share < 0.02


def test_the_first_tenth_of_exchanges_does_not_count() -> None:
    from benchmarks.channels import latency

    put = [0, 1000, 2000, 3000]
    assert latency(put, [900, 1010, 2020, 3030]) == 20e-9


FEW = ("collect={envs: 2, steps: 4}", "update={epochs: 2, minibatch_size: 4}")


def test_the_plain_loop_gives_the_numbers_of_the_flow() -> None:
    # Episodes of three steps: they end, and are truncated, within a collection and across two.
    options = [*FEW, "simulator.processes=1", "simulator.max_episode_steps=3"]
    found = json.loads(run("benchmarks.plain", "quickstart", "2", *options).splitlines()[-1])
    assert found.keys() == {"flow", "plain"}
    assert min(found.values()) > 0


def test_a_plain_loop_that_gives_others_is_found_out() -> None:
    from benchmarks.plain import compare

    compare(0, {"a": 1.0, "b": math.nan}, {"a": 1.0, "b": math.nan})
    with pytest.raises(SystemExit, match=r"iteration 3: a is 1\.5, and in the flow 1\.0"):
        compare(3, {"a": 1.0}, {"a": 1.5})


@pytest.fixture
def busy(monkeypatch: Any, tmp_path: Path) -> None:
    """Install the benchmarks' own plugin for child processes, as no session of tests does."""
    from benchmarks.suite.listing import _factory

    source = ROOT / "benchmarks" / "plugins" / "rlinf-plugin-bench" / "src"
    _factory().Site(tmp_path / "site").add("rlinf-plugin-bench")
    path = [str(tmp_path / "site"), str(source), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("placement", ["collocated", "hybrid"])
def test_a_balanced_toy_costs_what_it_is_told_to(tmp_path: Path, placement: str) -> None:
    from benchmarks import ours

    options = [*FEW, "simulator.milliseconds=5", "model.milliseconds=5"]
    picture = tmp_path / "toy.png"
    found = ours.train("busy", 2, 0, f"placement={placement}", *options, picture=picture)
    assert found["steps"] == 16
    # Four steps of two environments of both parts take 80 ms in turn, and at least half of that.
    assert found["collect_s"] >= (0.08 if placement == "collocated" else 0.04)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("busy")
def test_workers_of_many_slots_sleep(bench: Any, monkeypatch: Any) -> None:
    from benchmarks.suite import pipeline

    monkeypatch.setattr(pipeline, "STEPS", 4)
    made = bench()
    made.quick, made.rounds = True, 1
    pipeline._bubble(made, 4, 2)
    result = json.loads(made.write().read_text(encoding="utf-8"))
    (line,) = result["comparisons"]
    assert line["others"] == [pytest.approx(8 * 0.1)]  # 4 steps and 4 times acting
    assert line["ratios"][0] >= 1.0


def test_peers_get_the_numbers_of_our_run_file() -> None:
    from benchmarks.tasks import TASKS

    for task in TASKS:
        assert set(task.options()) == set(OPTIONS)


def test_the_goal_counts_the_last_fifty_episodes() -> None:
    from benchmarks.peers.record import summary

    # 8 episodes an iteration: 50 are six iterations and a quarter of the seventh.
    failing = [[800 * (k + 1), float(k + 1), 8, 0] for k in range(10)]
    solving = [[8000 + 800 * (k + 1), 10.0 + k + 1, 8, 8] for k in range(10)]
    found = summary(failing + solving)
    assert found["goal_steps"] == 8000 + 800 * 6  # 48 of the last 50, five iterations give 40
    assert found["goal_seconds"] == 16.0
    assert summary(failing)["goal_steps"] is None
    assert summary(solving[:5])["goal_steps"] is None  # all solved, but only 40 episodes


def test_an_interrupted_benchmark_goes_on_where_it_was(bench: Any) -> None:
    first = bench(size=1)
    assert first.sample("a", 0, lambda: 1.0) == 1.0
    again = bench(size=1)
    assert again.sample("a", 0, lambda: 2.0) == 1.0
    assert again.sample("a", 1, lambda: 3.0) == 3.0
    other = bench(size=2)
    assert other.sample("a", 0, lambda: 4.0) == 4.0
    other.write()
    assert bench(size=2).sample("a", 0, lambda: 5.0) == 5.0


def test_a_peer_that_fails_is_named_with_the_reason(bench: Any) -> None:
    from benchmarks.bench import Failed

    def fail() -> float:
        raise Failed(f"ERROR: nothing at https://index.example/simple for {ROOT}/x")

    made = bench()
    assert made.sample("peer", 0, fail) is None
    assert made.sample("peer", 1, lambda: 1.0) is None
    made.compare("speed", "steps/s", [2.0, 4.0], "peer", [None, None])
    result = json.loads(made.write().read_text(encoding="utf-8"))
    assert result["absent"] == {"peer": "ERROR: nothing at (address) for ./x"}
    assert result["comparisons"][0]["ratios"] == []


def test_the_page_shows_ratios_aims_and_what_is_missing(bench: Any) -> None:
    from benchmarks.page import performance

    made = bench()
    made.compare("speed", "steps/s", [10.0, 30.0, 20.0], "peer", [10.0, 10.0, 10.0], at_least=2.5)
    made.compare("time", "s", [1.0, None, 1.0], "peer", [2.0, 2.0, 2.0], at_most=1.0)
    made.absent("another", "no wheel")
    folder = made.write().parent
    page = performance(folder)
    assert "| speed | 20 steps/s | peer | 10 steps/s | **2** | 1 to 3 | ≥ 2.5 | missed |" in page
    assert "| time | 1 s, missed in 1 of 3 | peer | 2 s | **0.5** | 0.5 to 0.5 | ≤ 1 | met" in page
    assert "* Not measured: another: no wheel" in page
