"""Whole runs on the real simulator: resume, interruption, sudden death, evaluation, refusals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError, RequestError, WorkerFailed
from rlinf_core.files import sha256
from rlinf_core.runs.checkpoint import find_checkpoint
from rlinf_core.runs.evaluate import SECTIONS, evaluate
from rlinf_core.runs.train import train

SMALL = {
    "run": "embodied",
    "name": "small",
    "seed": 7,
    "steps": 6,
    "simulator": {"name": "metaworld", "task": "reach-v3", "processes": 2, "max_episode_steps": 7},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1, "schedule": {"name": "linear", "iterations": 6}},
    "loggers": ["jsonl"],
    "collect": {"envs": 4, "steps": 5},
    "update": {"epochs": 2, "minibatch_size": 10},
    "checkpoint": {"every": 3},
    "evaluation": {"episodes": 3, "video": False},
}
CLI = [sys.executable, "-c", "from rlinf_core.cli import main; main()"]


@pytest.fixture
def small(tmp_path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return str(path)


def digests(checkpoint: Path) -> dict[str, str]:
    return {p.name: sha256(p) for p in sorted((checkpoint / "training").iterdir())}


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{"step": line["step"], **line["metrics"]} for line in lines]


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*CLI, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_for(condition, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def members(group: int) -> list[int]:
    """Return the living processes of a session, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


# --- resume ---------------------------------------------------------------------------------------


def test_case_c02_six_steps_equal_three_resume_and_three_bit_for_bit(small, tmp_path):
    straight = train(load_run(small), tmp_path / "straight", resume=False)
    first = train(load_run(small, ["steps=3"]), tmp_path / "halves", resume=False)
    assert first.steps == 3
    second = train(load_run(small), tmp_path / "halves", resume=True)

    assert digests(straight.checkpoint) == digests(second.checkpoint)
    assert len(digests(straight.checkpoint)) >= 3
    assert metrics(straight.folder) == metrics(second.folder)
    states = [json.loads((r.checkpoint / "state.json").read_text()) for r in (straight, second)]
    assert states[0] == states[1]
    assert states[0]["version"] == 6  # case w08: versions go on, they never restart
    assert straight.evaluation == second.evaluation


def test_a_resumed_run_says_what_changed_and_that_episodes_were_restarted(small, tmp_path):
    train(load_run(small, ["steps=3"]), tmp_path / "run", resume=False)
    code, _, err = finish(
        start("train", small, "--output", str(tmp_path / "run"), "--resume", "loggers=[console]")
    )
    assert code == 0
    assert "resuming after step 3" in err
    assert "steps was 3 in the checkpoint; going on with 6" in err
    assert "this simulator cannot restore them" in err


def test_resuming_a_finished_run_trains_no_more(small, tmp_path):
    before = train(load_run(small), tmp_path / "run", resume=False)
    digest = digests(before.checkpoint)
    again = train(load_run(small), tmp_path / "run", resume=True)
    assert again.steps == 6
    assert digests(again.checkpoint) == digest
    assert len(metrics(tmp_path / "run")) == 6


def test_resuming_where_nothing_is_starts_at_the_beginning(small, tmp_path):
    result = train(load_run(small, ["steps=1"]), tmp_path / "nothing", resume=True)
    assert result.steps == 1


def test_nothing_is_overwritten(small, tmp_path):
    train(load_run(small, ["steps=1"]), tmp_path / "run", resume=False)
    before = {p: sha256(p) for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(RequestError, match="nothing is overwritten"):
        train(load_run(small), tmp_path / "run", resume=False)
    assert before == {p: sha256(p) for p in (tmp_path / "run").rglob("*") if p.is_file()}


# --- interruption and death -----------------------------------------------------------------------


def test_ctrl_c_stops_after_a_safe_checkpoint_and_resume_equals_never_stopping(small, tmp_path):
    folder = tmp_path / "run"
    many = ["steps=40", "training.schedule.name=constant"]
    process = start("train", small, "--output", str(folder), "loggers=[console,jsonl]", *many)
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) >= 2)
    os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
    code, out, err = finish(process)
    assert code == 130, err
    assert "stopping after this iteration's checkpoint" in err
    assert "interrupted after" in out
    assert "--resume" in out
    assert members(process.pid) == []
    stopped = find_checkpoint(folder, pytest.fail)
    assert stopped.step == metrics(folder)[-1]["step"] < 40

    resumed = train(load_run(small, many), folder, resume=True)
    straight = train(load_run(small, [*many, "checkpoint.every=0"]), tmp_path / "b", resume=False)
    assert len(metrics(folder)) == 40
    # every checkpoint restarts what is under way, so runs agree up to the first one
    assert metrics(folder)[:3] == metrics(straight.folder)[:3]
    assert resumed.steps == 40


def test_ctrl_c_twice_ends_at_once_and_leaves_no_process(small, tmp_path):
    folder = tmp_path / "run"
    process = start("train", small, "--output", str(folder), "steps=100000", "checkpoint.every=0")
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) >= 2)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130, err
    assert "Traceback" not in err
    wait_for(lambda: members(process.pid) == [], 5)


def test_kill_9_at_random_moments_always_resumes_to_the_same_weights(small, tmp_path):
    options = ["checkpoint.every=1", "checkpoint.keep=2"]
    straight = train(load_run(small, options), tmp_path / "straight", resume=False)
    folder = tmp_path / "killed"
    rng = random.Random(0)
    for _ in range(4):
        process = start("train", small, "--output", str(folder), "--resume", *options)
        try:
            process.wait(timeout=2.0 + 2.5 * rng.random())
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        wait_for(lambda group=process.pid: members(group) == [], 10)
    result = train(load_run(small, options), folder, resume=True)
    assert digests(result.checkpoint) == digests(straight.checkpoint)
    assert metrics(folder) == metrics(straight.folder)
    assert not list((folder / "checkpoints").glob(".*"))


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_goes_on(small, tmp_path):
    folder = tmp_path / "run"
    first = start("train", small, "--output", str(folder), "steps=100000")
    try:
        wait_for(lambda: (folder / "metrics.jsonl").exists())
        code, _, err = finish(start("train", small, "--output", str(folder), "--resume"))
        assert code == 2
        assert "another run is writing here" in err
    finally:
        first.kill()
        first.communicate()


def test_a_failure_in_a_simulator_process_ends_the_run_with_one_clear_error(small, tmp_path):
    folder = tmp_path / "run"
    process = start("train", small, "--output", str(folder), "steps=100000")
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) >= 2)
    children = [pid for pid in members(process.pid) if pid != process.pid]
    os.kill(max(children), signal.SIGKILL)
    began = time.monotonic()
    code, out, err = finish(process)
    assert code == 1
    assert time.monotonic() - began < 10
    assert "simulation[0].collect failed" in err
    assert out == ""
    wait_for(lambda: members(process.pid) == [], 5)


def test_a_checkpoint_that_does_not_fit_the_model_is_refused(small, tmp_path):
    train(load_run(small, ["steps=1"]), tmp_path / "run", resume=False)
    with pytest.raises(WorkerFailed, match="training"):
        train(load_run(small, ["model.hidden=[8]"]), tmp_path / "run", resume=True)


# --- evaluation -----------------------------------------------------------------------------------


def test_case_c04_evaluation_in_a_run_equals_evaluation_of_the_saved_file(small, tmp_path):
    result = train(load_run(small, ["steps=2"]), tmp_path / "run", resume=False)
    found = find_checkpoint(tmp_path / "run", pytest.fail)
    again, _ = evaluate(load_run(small, ["steps=2"], sections=SECTIONS), found, None)
    assert again == result.evaluation
    assert again.initial_states == ["test/0", "test/1", "test/2"]


def test_case_k03_evaluation_needs_no_training_section(small, tmp_path):
    train(load_run(small, ["steps=1"]), tmp_path / "run", resume=False)
    lean = {k: SMALL[k] for k in ("name", "seed", "simulator", "model", "collect")}
    path = tmp_path / "lean.yaml"
    path.write_text(yaml.safe_dump(lean))
    arguments = ["--checkpoint", str(tmp_path / "run"), "--episodes", "4", "--json"]
    code, out, err = finish(start("eval", str(path), *arguments))
    assert code == 0, err
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert report["episodes"] == 4
    assert report["initial_states"] == [f"test/{i}" for i in range(4)]
    for name in ("success_once", "success_at_end"):
        low, high = report[f"{name}_interval"]
        assert 0 <= low <= report[name] <= high <= 1
    assert isinstance(report["return_mean"], float)
    with pytest.raises(ConfigError, match="training"):
        load_run(str(path))


def test_evaluating_during_a_run_leaves_its_training_alone(small, tmp_path):
    alone = train(load_run(small, ["steps=2"]), tmp_path / "a", resume=False)
    watched = train(
        load_run(small, ["steps=2", "evaluation.every=1"]), tmp_path / "b", resume=False
    )
    assert digests(alone.checkpoint) == digests(watched.checkpoint)
    assert "evaluation/success_once" in metrics(tmp_path / "b")[0]


def test_a_missing_checkpoint_is_a_wrong_request(small, tmp_path):
    code, _, err = finish(start("eval", small, "--checkpoint", str(tmp_path / "nowhere")))
    assert code == 2
    assert "holds no whole checkpoint" in err


# --- the command line -----------------------------------------------------------------------------


def test_train_says_what_was_learned_and_where_everything_lies(small, tmp_path):
    code, out, err = finish(start("train", small, "--output", str(tmp_path / "run"), "steps=2"))
    assert code == 0, err
    assert "done after 2 iterations, 40 environment steps" in out
    assert "held-out initial states" in out
    for name in ("curve.png", "metrics.jsonl", "step-2"):
        assert name in out
        assert list((tmp_path / "run").rglob(name))


def test_train_json_is_one_document_on_standard_output(small, tmp_path):
    arguments = ["--output", str(tmp_path / "run"), "steps=1", "--json"]
    code, out, err = finish(start("train", small, *arguments))
    assert code == 0, err
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert (report["outcome"], report["steps"], report["env_steps"]) == ("done", 1, 20)
    assert Path(report["checkpoint"]).is_dir()
    assert report["evaluation"]["episodes"] == 3


def test_a_misspelt_option_is_refused_before_anything_starts(small, tmp_path):
    arguments = ["--output", str(tmp_path / "run"), "algorithm.clip_ratoi=0.1"]
    code, out, err = finish(start("train", small, *arguments))
    assert code == 2
    assert "algorithm.clip_ratoi" in err
    assert "clip_ratio" in err
    assert "rlinf-plugin-ppo" in err
    assert out == ""
    assert not (tmp_path / "run").exists()
