"""Whole runs on the real simulator: resume, interruption, sudden death, evaluation, refusals."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.errors import (
    CheckpointError,
    ConfigError,
    PluginError,
    RequestError,
    WorkerFailed,
)
from rlinf_core.files import sha256
from rlinf_core.protocols.simulator import Autoreset
from rlinf_core.runs.checkpoint import find_checkpoint
from rlinf_core.runs.evaluate import SECTIONS, evaluate
from rlinf_core.runs.train import train
from rlinf_core.testing import ToySimulator

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
KILLS = int(os.environ.get("RLINF_TEST_KILLS", "4"))
CLI = [sys.executable, "-c", "from rlinf_core.cli import main; main()"]


@pytest.fixture
def small(tmp_path) -> str:
    """A run on the real simulator."""
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return str(path)


@pytest.fixture
def tiny(tmp_path, toys) -> str:
    """The same on a simulator that starts at once and restores its state."""
    path = tmp_path / "tiny.yaml"
    simulator = {"name": "toy", "horizon": 7}
    path.write_text(yaml.safe_dump({**SMALL, "simulator": simulator}, sort_keys=False))
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


def equal_in_two_halves(run: str, tmp_path: Path, *options: str) -> None:
    straight = train(load_run(run, options), tmp_path / "straight", resume=False)
    first = train(load_run(run, [*options, "steps=3"]), tmp_path / "halves", resume=False)
    assert first.steps == 3
    second = train(load_run(run, options), tmp_path / "halves", resume=True)

    assert digests(straight.checkpoint) == digests(second.checkpoint)
    assert len(digests(straight.checkpoint)) >= 3
    assert metrics(straight.folder) == metrics(second.folder)
    states = [json.loads((r.checkpoint / "state.json").read_text()) for r in (straight, second)]
    assert states[0] == states[1]
    assert states[0]["version"] == 6  # case w08: versions go on, they never restart
    assert straight.evaluation == second.evaluation


def test_case_c02_six_steps_equal_three_resume_and_three_bit_for_bit(small, tmp_path):
    """Episodes of 7 steps are under way at every checkpoint, after 5, 10, 15, ... steps."""
    equal_in_two_halves(small, tmp_path)


def test_case_c02_on_a_simulator_that_cannot_restore_its_state(tiny, tmp_path):
    equal_in_two_halves(tiny, tmp_path, "simulator.name=toy-forgetful")


def test_case_c02_with_several_stages_and_chunks(tiny, tmp_path):
    equal_in_two_halves(tiny, tmp_path, "collect.stages=2", "collect.chunk=3")


def test_a_forgetful_simulator_restarts_at_checkpoints_and_says_so(tiny, tmp_path, capsys):
    options = ["simulator.name=toy-forgetful", "loggers=[console,jsonl]"]
    train(load_run(tiny, options), tmp_path / "a", resume=False)
    said = "this simulator cannot restore them"
    assert said in capsys.readouterr().err
    train(load_run(tiny, ["loggers=[console,jsonl]"]), tmp_path / "b", resume=False)
    assert said not in capsys.readouterr().err


def test_a_resumed_run_says_where_it_goes_on_and_what_changed(tiny, tmp_path, capsys):
    train(load_run(tiny, ["steps=3"]), tmp_path / "run", resume=False)
    train(load_run(tiny, ["loggers=[console]"]), tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert "resuming after step 3" in said
    assert "steps was 3 in the checkpoint; going on with 6" in said


def test_another_layout_of_environments_restarts_episodes_and_says_so(tiny, tmp_path, capsys):
    train(load_run(tiny, ["steps=3"]), tmp_path / "run", resume=False)
    options = ["collect.stages=2", "loggers=[console]"]
    train(load_run(tiny, options), tmp_path / "run", resume=True)
    assert "laid out differently" in capsys.readouterr().err


def test_resuming_a_finished_run_trains_no_more(tiny, tmp_path):
    before = train(load_run(tiny), tmp_path / "run", resume=False)
    digest = digests(before.checkpoint)
    again = train(load_run(tiny), tmp_path / "run", resume=True)
    assert again.steps == 6
    assert again.evaluation == before.evaluation
    assert digests(again.checkpoint) == digest
    assert len(metrics(tmp_path / "run")) == 6


def test_resuming_where_nothing_is_starts_at_the_beginning_and_says_so(tiny, tmp_path, capsys):
    options = ["steps=1", "loggers=[console]"]
    assert train(load_run(tiny, options), tmp_path / "nothing", resume=True).steps == 1
    assert "starting at step 0" in capsys.readouterr().err


def test_starting_over_without_a_checkpoint_says_what_changed(tiny, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"seed": 3, "steps": 1}')
    options = ["steps=1", "loggers=[console]"]
    train(load_run(tiny, options), tmp_path / "run", resume=True)
    assert "seed was 3 in the earlier try; going on with 7" in capsys.readouterr().err


def test_nothing_is_overwritten(tiny, tmp_path):
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    before = {p: sha256(p) for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(RequestError, match="nothing is overwritten"):
        train(load_run(tiny), tmp_path / "run", resume=False)
    assert before == {p: sha256(p) for p in (tmp_path / "run").rglob("*") if p.is_file()}


def test_a_run_that_is_refused_at_its_start_leaves_nothing_in_its_folder(tiny, tmp_path):
    wrong = load_run(tiny, ["evaluation.episodes=11"])
    with pytest.raises(RequestError, match=r"'test' has 10 initial states.*at most 10"):
        train(wrong, tmp_path / "run", resume=False)
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)  # same folder, no complaint


def test_plugins_hear_of_a_run_and_their_failure_changes_nothing(tiny, tmp_path, capsys):
    train(load_run(tiny, ["steps=1", "loggers=[console]"]), tmp_path / "run", resume=False)
    out, err = capsys.readouterr()
    assert "toys: started small" in out
    assert "rlinf_run_finished failed: RuntimeError: toys: done" in err


def test_a_run_without_loggers_resumes(tiny, tmp_path):
    train(load_run(tiny, ["steps=1", "loggers=[]"]), tmp_path / "run", resume=False)
    result = train(load_run(tiny, ["steps=2", "loggers=[]"]), tmp_path / "run", resume=True)
    assert (result.steps, result.metrics, result.curve) == (2, None, None)


def test_checkpoints_none_of_which_is_whole_are_not_replaced(tiny, tmp_path):
    result = train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    (result.checkpoint / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none that is whole, and nothing is overwritten"):
        train(load_run(tiny), tmp_path / "run", resume=True)
    assert result.checkpoint.exists()


def test_a_damaged_log_is_passed_over(tiny, tmp_path):
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    log = tmp_path / "run" / "metrics.jsonl"
    odd = [
        b"\xff\xfe",
        b'{"step": Infinity}',
        b'{"step": 1}',
        b"[1]",
        b'{"step": 1, "metrics": {}}',
    ]
    log.write_bytes(log.read_bytes() + b"\n".join(odd) + b'\n{"step": 2, "met')
    result = train(load_run(tiny, ["steps=2"]), tmp_path / "run", resume=True)
    assert result.curve.exists()
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 1, 2]


def test_more_environments_than_before_start_anew(tiny, tmp_path):
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    result = train(load_run(tiny, ["steps=2", "collect.envs=6"]), tmp_path / "run", resume=True)
    assert result.steps == 2


# --- interruption and death -----------------------------------------------------------------------


def test_ctrl_c_stops_after_a_safe_checkpoint_and_resume_equals_never_stopping(
    small, toys, tmp_path
):
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
    assert "rlinf_run_finished failed: RuntimeError: toys: interrupted" in err
    assert members(process.pid) == []
    stopped = find_checkpoint(folder, pytest.fail)
    assert stopped.step == metrics(folder)[-1]["step"] < 40

    resumed = train(load_run(small, many), folder, resume=True)
    straight = train(load_run(small, many), tmp_path / "straight", resume=False)
    assert metrics(folder) == metrics(straight.folder)
    assert digests(resumed.checkpoint) == digests(straight.checkpoint)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_batch_system_or_a_lost_line_stops_after_a_checkpoint_too(small, tmp_path, number):
    folder = tmp_path / "run"
    process = start("train", small, "--output", str(folder), "steps=100000", "checkpoint.every=0")
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) >= 2)
    os.killpg(process.pid, number)
    code, out, err = finish(process)
    assert code == 130, err
    assert find_checkpoint(folder, pytest.fail).step == metrics(folder)[-1]["step"]
    hint = next(line for line in out.splitlines() if line.startswith("go on with:"))
    assert shlex.split(hint)[3:] == [
        *("rlinf", "train", small, "steps=100000", "checkpoint.every=0"),
        *("--output", str(folder), "--resume"),
    ]


def test_ctrl_c_twice_ends_at_once_and_leaves_no_process(small, tmp_path):
    folder = tmp_path / "run"
    options = ["steps=100000", "checkpoint.every=0", "loggers=[console,jsonl]"]
    long = ["collect.steps=500"]  # an iteration of seconds, so that the first does not end the run
    process = start("train", small, "--output", str(folder), *options, *long)
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) >= 1)
    process.send_signal(signal.SIGINT)
    said = ""
    while "once more to stop now" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130, err
    assert "stopping now" in err
    assert "Traceback" not in err
    assert not (folder / "checkpoints").exists()
    wait_for(lambda: members(process.pid) == [], 5)


def test_kill_9_at_random_moments_always_resumes_to_the_same_weights(small, tmp_path):
    options = ["checkpoint.every=1", "checkpoint.keep=2"]
    straight = train(load_run(small, options), tmp_path / "straight", resume=False)
    folder = tmp_path / "killed"
    rng = random.Random(0)
    for _ in range(KILLS):
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


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_goes_on(tiny, tmp_path):
    folder = tmp_path / "run"
    first = start("train", tiny, "--output", str(folder), "steps=100000")
    try:
        wait_for(lambda: (folder / "metrics.jsonl").exists())
        with pytest.raises(RequestError, match="another run is writing here"):
            train(load_run(tiny), folder, resume=True)
    finally:
        first.kill()
        first.communicate()


def test_a_dead_simulator_process_ends_the_run_with_one_clear_error(small, tmp_path):
    folder = tmp_path / "run"
    process = start("train", small, "--output", str(folder), "steps=100000", "checkpoint.every=0")
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


def test_a_checkpoint_that_does_not_fit_the_model_is_refused(tiny, tmp_path):
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    with pytest.raises(WorkerFailed, match="training") as failure:
        train(load_run(tiny, ["model.hidden=[8]"]), tmp_path / "run", resume=True)
    assert failure.value.exit_code == 2


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


def test_ctrl_c_ends_an_evaluation_at_once_and_leaves_no_process(small, tmp_path):
    train(load_run(small, ["steps=1"]), tmp_path / "run", resume=False)
    long = ["simulator.max_episode_steps=500", "evaluation.episodes=100", "evaluation.envs=1"]
    process = start("eval", small, "--checkpoint", str(tmp_path / "run"), *long)
    wait_for(lambda: len(members(process.pid)) >= 3)  # the zygote and a simulator
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    wait_for(lambda: members(process.pid) == [], 5)


def test_evaluating_during_a_run_leaves_its_training_alone(tiny, tmp_path):
    alone = train(load_run(tiny, ["steps=2"]), tmp_path / "a", resume=False)
    watched = train(load_run(tiny, ["steps=2", "evaluation.every=1"]), tmp_path / "b", resume=False)
    assert digests(alone.checkpoint) == digests(watched.checkpoint)
    assert "evaluation/success_once" in metrics(tmp_path / "b")[0]


def test_the_best_checkpoint_may_be_that_of_an_evaluation(tiny, tmp_path):
    options = ["steps=3", "evaluation.every=1", "checkpoint.every=1", "checkpoint.keep=1"]
    best = ["checkpoint.best=evaluation/return"]
    result = train(load_run(tiny, [*options, *best]), tmp_path / "run", resume=False)
    returns = {line["step"]: line["evaluation/return"] for line in metrics(tmp_path / "run")}
    state = json.loads((result.checkpoint / "state.json").read_text())
    assert state["metrics"]["evaluation/return"] == returns[3]
    wanted = {max(returns, key=lambda step: (returns[step], step)), 3}
    kept = (tmp_path / "run" / "checkpoints").iterdir()
    assert {path.name for path in kept} == {f"step-{step}" for step in wanted}


def test_a_simulator_that_resets_itself_is_refused_before_it_trains(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(ToySimulator, "autoreset", Autoreset.SAME_STEP)
    with pytest.raises(RequestError, match="resets by itself.*autoreset is DISABLED"):
        train(load_run(tiny), tmp_path / "run", resume=False)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_video_is_a_grid_of_episodes(tiny, tmp_path):
    import imageio.v3 as imageio

    result = train(load_run(tiny, ["steps=1", "evaluation.video=true"]), tmp_path / "r", False)
    frames = imageio.imread(result.video)  # [steps, height, width, 3]
    assert frames.shape == (
        8,
        32,
        32,
        3,
    )  # three episodes of 16 x 16; their first view, then 7 steps
    assert frames.max() > 200


def test_a_missing_checkpoint_is_a_wrong_request(tiny, tmp_path):
    code, _, err = finish(start("eval", tiny, "--checkpoint", str(tmp_path / "nowhere")))
    assert code == 2
    assert "holds no whole checkpoint" in err
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    with pytest.raises(CheckpointError, match=r"step-3: manifest.json is missing.*: step-1"):
        find_checkpoint(tmp_path / "run" / "checkpoints" / "step-3", pytest.fail)


def test_a_split_that_the_simulator_does_not_have_is_a_wrong_request(small, tmp_path):
    with pytest.raises(RequestError, match=r"evaluation\.split=tset: .*Did you mean 'test'"):
        train(load_run(small, ["evaluation.split=tset"]), tmp_path / "run", resume=False)


def test_success_is_not_reported_where_the_simulator_does_not_declare_it(tiny, tmp_path):
    options = ["steps=1", "simulator.name=toy-silent", "evaluation.video=true"]
    result = train(load_run(tiny, options), tmp_path / "run", resume=False)
    assert result.evaluation.success_once is None
    assert "success" not in result.evaluation.sentence()
    assert not any("success" in name for name in metrics(tmp_path / "run")[0])
    assert result.video_note == "this simulator renders nothing"


# --- loggers --------------------------------------------------------------------------------------


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(tiny, tmp_path, capsys):
    options = ["steps=2", "loggers=[{name: brittle, at: 1}, jsonl]"]
    result = train(load_run(tiny, options), tmp_path / "run", resume=False)
    assert result.outcome == "done"
    assert len(metrics(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert "the logger 'brittle' (from rlinf-plugin-toys) failed and is left out" in said
    assert "OSError: no service" in said


def test_a_logger_that_cannot_start_refuses_the_run_by_name(tiny, tmp_path):
    options = ["steps=2", "loggers=[{name: brittle, at: 0}]"]
    with pytest.raises(PluginError, match=r"'brittle' \(from rlinf-plugin-toys\) cannot start"):
        train(load_run(tiny, options), tmp_path / "run", resume=False)


def test_asking_for_more_episodes_than_there_are_states_is_a_wrong_request(tiny, tmp_path):
    train(load_run(tiny, ["steps=1"]), tmp_path / "run", resume=False)
    arguments = ["--checkpoint", str(tmp_path / "run"), "--episodes", "11"]
    code, _, err = finish(start("eval", tiny, *arguments))
    assert code == 2
    assert "at most 10" in err
    arguments[-1] = "2"
    code, _, err = finish(start("eval", tiny, *arguments, "model.activation=relu"))
    assert code == 0
    assert "model.activation was 'tanh' in the checkpoint; going on with 'relu'" in err


# --- the command line -----------------------------------------------------------------------------


def test_train_says_what_was_learned_and_where_everything_lies(tiny, tmp_path):
    code, out, err = finish(start("train", tiny, "--output", str(tmp_path / "run"), "steps=2"))
    assert code == 0, err
    assert "done after 2 iterations, 40 environment steps" in out
    assert "held-out initial states" in out
    for name in ("curve.png", "metrics.jsonl", "step-2"):
        assert name in out
        assert list((tmp_path / "run").rglob(name))


def test_train_json_is_one_document_on_standard_output(tiny, tmp_path):
    arguments = ["--output", str(tmp_path / "run"), "steps=1", "--json"]
    code, out, err = finish(start("train", tiny, *arguments))
    assert code == 0, err
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert (report["outcome"], report["steps"], report["env_steps"]) == ("done", 1, 20)
    assert Path(report["checkpoint"]).is_dir()
    assert report["evaluation"]["episodes"] == 3


def test_a_misspelt_option_is_refused_before_anything_starts(tiny, tmp_path):
    arguments = ["--output", str(tmp_path / "run"), "algorithm.clip_ratoi=0.1"]
    code, out, err = finish(start("train", tiny, *arguments))
    assert code == 2
    assert "algorithm.clip_ratoi" in err
    assert "clip_ratio" in err
    assert "rlinf-plugin-ppo" in err
    assert out == ""
    assert not (tmp_path / "run").exists()
