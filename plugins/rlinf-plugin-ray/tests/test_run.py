"""Whole runs by the command, with a Ray that each starts for itself, and what is left of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlinf_plugin_ray.cluster import Cluster
from rlinf_plugin_ray.config import RayConfig

SMALL = (
    *("steps=2", "seed=3", "collect.envs=4", "collect.steps=20", "update.epochs=2"),
    *("update.minibatch_size=40", "evaluation.episodes=4", "evaluation.video=false"),
    *("simulator.processes=1", "simulator.max_episode_steps=20", "loggers=[jsonl]"),
    *("cluster.devices=2 x cpu", "placement={simulation: 0, rollout: 1, training: 'all:1'}"),
)
ENDLESS = (*SMALL, "steps=100000", "checkpoint.every=0")
LONG = """
import os
from rlinf_plugin_ray.config import RayConfig
from rlinf_plugin_ray.runtime import RayRuntime
from rlinf_core.api import WorkerSpec

os.environ["RLINF_TEST_LONG"] = "x" * 200_000  # with which no process can be started
runtime = RayRuntime(RayConfig(address="local"))
group = runtime.launch(WorkerSpec("group", "ray_test_workers:Odd"))
[[told]] = group.call("variables", "RLINF_TEST_LONG").wait()
runtime.close()
print(len(told))
"""


class Command:
    """``rlinf train quickstart`` in a session of its own; every process of it carries a mark."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self._mark = uuid.uuid4().hex
        self.folder = folder
        self.temporary = Path(
            tempfile.mkdtemp(prefix="rl-", dir="/tmp")
        )  # sockets have short paths
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from rlinf_core.cli import main; main()"),
                *("train", "quickstart", "--output", str(folder)),
                *overrides,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RLINF_TEST_MARK": self._mark,
                "TMPDIR": str(self.temporary),
            },
            start_new_session=True,
        )

    def iterations(self) -> int:
        return len(metrics(self.folder))

    def go_on(self) -> None:
        """Wait until the run is in the middle of something."""
        wait_for(lambda: self.iterations() >= 2 or self.process.poll() is not None, 240)
        assert self.process.poll() is None, self.process.communicate()

    def named(self) -> dict[str, int]:
        """Return the living processes that carry the mark, by the name that ``ps`` shows."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes()
                dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue
            if marked and not dead:
                found[name] = int(folder.name)
        return found

    def simulating(self) -> int:
        """Return the worker that has a simulator: it has processes of its own."""
        parents = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes():
                    parents.add((folder / "stat").read_text().rpartition(")")[2].split()[1])
        named = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in parents if pid != "1"}
        return next(int(pid) for pid, name in named.items() if name.startswith("ray::Worker"))

    def end(self, seconds: float = 20.0) -> str:
        """Wait for the end, see that nothing is left, and return what was said."""
        began = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=seconds + 30)
        finally:
            self.process.kill()
        assert time.monotonic() - began < seconds, err
        wait_for(lambda: self.named() == {}, seconds)
        assert self.left() == []
        shutil.rmtree(self.temporary)
        return out + err

    def left(self) -> list[Path]:
        """Return the folders of a Ray of this command."""
        return list(self.temporary.glob("rlinf-ray-*"))


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["metrics"] for line in lines if line.endswith("}")]


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


def test_the_quick_start_gives_the_very_numbers_of_one_process(tmp_path: Path) -> None:
    runs = {}
    for runtime in ("inline", "ray"):
        command = Command(tmp_path / runtime, *SMALL, f"cluster.runtime={runtime}")
        said = command.end(seconds=90)
        assert command.process.returncode == 0, said
        runs[runtime] = [
            {name: value for name, value in line.items() if not name.startswith("time/")}
            for line in metrics(tmp_path / runtime)
        ]
    assert len(runs["ray"]) == 2
    assert runs["ray"] == runs["inline"]


def test_case_r02_a_killed_worker_ends_the_run_with_one_clear_error(tmp_path: Path) -> None:
    command = Command(tmp_path, *ENDLESS, "cluster.runtime=ray")
    command.go_on()
    os.kill(command.named()["ray::WorkerActo"], signal.SIGKILL)
    said = command.end()
    assert command.process.returncode == 1
    assert re.search(r"(simulation|rollout|training)\[0\]\.\w+ failed", said)
    assert "WorkerDied" in said
    assert "raylet" not in said
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in said


def test_case_r02_ctrl_c_ends_the_run(tmp_path: Path) -> None:
    command = Command(tmp_path, *ENDLESS, "cluster.runtime=ray")
    command.go_on()
    for _ in range(2):  # a terminal's Ctrl-C reaches the whole group
        os.killpg(command.process.pid, signal.SIGINT)
        time.sleep(0.02)
    said = command.end()
    assert command.process.returncode == 130, said
    assert "Traceback" not in said


def test_case_r02_a_killed_driver_takes_its_ray_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(tmp_path, *ENDLESS, "cluster.runtime=ray")
    command.go_on()
    command.process.kill()
    command.process.wait()
    agents = {"ray::DashboardA", "ray::RuntimeEnv"}  # Ray's own; they notice within a minute
    wait_for(lambda: command.named().keys() <= agents, 30)
    for pid in command.named().values():
        os.kill(pid, signal.SIGKILL)
    (left,) = command.left()  # what a killed process cannot take away, the next one does
    os.utime(left, (0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(command.temporary))
    Cluster(RayConfig(address="local"), slots=1, labels=frozenset()).close()
    assert command.left() == []
    shutil.rmtree(command.temporary)


def test_case_r01_a_variable_of_200_kb_does_not_stop_the_start_of_a_ray() -> None:
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", LONG], capture_output=True, text=True, env=variables, timeout=90
    )
    assert done.stdout == "200000\n", done.stderr


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["cluster.runtime={name: ray, address: '127.0.0.1:9'}"], "nothing answers at 127.0.0.1:9"),
        (["cluster.runtime={name: ray, adress: auto}"], "Did you mean 'address'"),
    ],
)
def test_a_wrong_request_starts_nothing(tmp_path: Path, overrides: list[str], told: str) -> None:
    command = Command(tmp_path / "run", *SMALL, *overrides)
    said = command.end(seconds=30)
    assert command.process.returncode == 2, said
    assert told in said
    assert not (tmp_path / "run").exists() or metrics(tmp_path / "run") == []


def test_a_killed_simulator_is_made_anew_and_changes_no_number(tmp_path: Path) -> None:
    told = {}
    for runtime in ("ray", "inline"):
        options = [
            *SMALL,
            "steps=30",
            "cluster.restarts.simulation=1",
            f"cluster.runtime={runtime}",
        ]
        command = Command(tmp_path / runtime, *options)
        if runtime == "ray":
            command.go_on()
            os.kill(command.simulating(), signal.SIGKILL)
        said = command.end(seconds=240)
        assert command.process.returncode == 0, said
        assert ("1 worker failed and was made anew" in said) is (runtime == "ray"), said
        told[runtime] = [
            {name: line[name] for name in line if name.startswith(("env_steps", "episode/"))}
            for line in metrics(tmp_path / runtime)
        ]
    assert len(told["ray"]) == 30
    assert told["ray"] == told["inline"]
