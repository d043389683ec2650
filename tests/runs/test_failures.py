"""Whole runs on the runtime ``processes``, of which somebody is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

RUN = {
    "run": "embodied",
    "name": "small",
    "steps": 100_000,
    "cluster": {"runtime": "processes"},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 4, "steps": 5},
    "update": {"epochs": 2, "minibatch_size": 10},
    "checkpoint": {"every": 0},
    "evaluation": {"episodes": 3, "video": False},
}
TOY = {"name": "toy", "horizon": 7}
ROBOT = {"name": "metaworld", "task": "reach-v3", "processes": 2, "max_episode_steps": 7}


class Command:
    """``rlinf train`` in a session of its own; every process of it carries a mark."""

    def __init__(self, folder: Path, simulator: dict) -> None:
        run, self._mark = folder / "small.yaml", uuid.uuid4().hex
        run.write_text(yaml.safe_dump({**RUN, "simulator": simulator}, sort_keys=False))
        self._metrics = folder / "run" / "metrics.jsonl"
        self._shared = shared()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from rlinf_core.cli import main; main()"),
                *("train", str(run), "--output", str(folder / "run")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "RLINF_TEST_MARK": self._mark},
            start_new_session=True,
        )
        wait_for(lambda: self.iterations() >= 2 or self.process.poll() is not None, 90)
        assert self.process.poll() is None, self.process.communicate()

    def iterations(self) -> int:
        return len(self._metrics.read_text().splitlines()) if self._metrics.exists() else 0

    def named(self) -> dict[str, int]:
        """Return the living processes that carry the mark, by the name that ``ps`` shows."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes()
                dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                name = (folder / "comm").read_text().strip()
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if marked and not dead:
                pid = int(folder.name)
                name = "zygote" if parent == self.process.pid else name
                found["driver" if pid == self.process.pid else name] = pid
        return found

    def end(self, seconds: float = 15.0) -> str:
        """Wait for the end, see that nothing is left, and return what was said."""
        began = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self.process.kill()
        assert time.monotonic() - began < seconds, err
        wait_for(lambda: self.named() == {}, seconds)
        assert shared() <= self._shared
        return out + err


def shared() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.iterdir() if "rlinf" in p.name} if folder.is_dir() else set()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("simulation[0]", "simulation[0]."),
        ("rollout[0]", "rollout[0]."),
        ("training[0]", "training[0]."),
        ("switchboard", "the switchboard, the process that keeps channels and leases, is gone"),
        ("zygote", "its zygote ended with status -9"),
    ],
)
def test_case_r02_whoever_is_killed_the_run_ends_with_one_clear_error(toys, tmp_path, who, told):
    command = Command(tmp_path, TOY)
    os.kill(command.named()[who], signal.SIGKILL)
    said = command.end()
    assert command.process.returncode == 1
    assert told in said
    assert "SIGKILL" in said or who == "zygote"
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("simulator", [TOY, ROBOT], ids=["toy", "metaworld"])
def test_case_r02_a_killed_driver_takes_everything_along(toys, tmp_path, simulator):
    command = Command(tmp_path, simulator)
    assert len(command.named()) >= 6
    command.process.kill()
    command.end()


def test_case_r02_a_killed_worker_takes_its_simulator_along(tmp_path):
    command = Command(tmp_path, ROBOT)
    os.kill(command.named()["simulation[0]"], signal.SIGKILL)
    assert "simulation[0]." in command.end()
    assert command.process.returncode == 1


@pytest.mark.parametrize("times", [1, 2])
def test_case_r02_ctrl_c_ends_the_run(toys, tmp_path, times):
    command = Command(tmp_path, TOY)
    for _ in range(times):  # a terminal's Ctrl-C reaches the whole group
        os.killpg(command.process.pid, signal.SIGINT)
        time.sleep(0.02)
    said = command.end()
    assert command.process.returncode == 130, said
    assert "Traceback" not in said
