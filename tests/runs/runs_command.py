"""``rlinf train`` as a command of its own, whose processes a test can find and kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

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

    def __init__(self, folder: Path, simulator: dict, changed: Mapping = MappingProxyType({})):
        run, self._mark = folder / "small.yaml", uuid.uuid4().hex
        run.write_text(yaml.safe_dump({**self.run(simulator), **changed}, sort_keys=False))
        self.metrics = folder / "run" / "metrics.jsonl"
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
        return len(self.metrics.read_text().splitlines()) if self.metrics.exists() else 0

    @staticmethod
    def run(simulator: dict) -> dict:
        """Return the run that is trained where nothing is changed."""
        return {**RUN, "simulator": simulator}

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
