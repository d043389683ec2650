"""Signals at every moment of a run, as a terminal or a batch system sends them: nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from runs_command import TOY, Command, shared, wait_for

from rlinf_core.runs.checkpoint import CheckpointStore

MOMENTS = {  # a function, and its how-manieth call: planning a run calls some of them, twice
    "start": ("rlinf_core.runs.embodied:EmbodiedRun._begin", 3),
    "collecting": ("rlinf_core.runs.embodied:EmbodiedRun._collect", 4),
    "learning": ("rlinf_core.runs.embodied:EmbodiedRun._sync_weights", 6),
    "checkpoint": ("rlinf_core.runs.checkpoint:_write_manifest", 2),
    "evaluation": ("rlinf_core.runs.evaluation:Evaluator.run", 3),
    "closing": ("rlinf_core.runtime.processes:ProcessRuntime.close", 1),
    "closing inline": ("rlinf_core.runtime.inline:InlineRuntime.close", 1),
}
SCRIPT = """
import importlib, sys, time
module, _, path = {moment!r}.partition(":")
owner = importlib.import_module(module)
*parents, name = path.split(".")
for parent in parents:
    owner = getattr(owner, parent)
inner, calls = getattr(owner, name), []

def announced(*args, **kwargs):
    calls.append(1)
    if len(calls) == {call}:
        print("NOW", file=sys.stderr, flush=True)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:  # signals interrupt a sleep
            pass
    return inner(*args, **kwargs)

setattr(owner, name, announced)
from rlinf_core.cli import main
main()
"""


class Announced(Command):
    """A run that says when it comes to a moment, and takes its time there."""

    def __init__(self, folder: Path, runtime: str, moment: str, call: int) -> None:
        run = folder / "small.yaml"
        changed = {
            "cluster": {"runtime": runtime},
            "steps": 6,
            "checkpoint": {"every": 1},
            "evaluation": {"every": 2, "episodes": 3, "video": False},
        }
        run.write_text(yaml.safe_dump({**self.run(TOY), **changed}, sort_keys=False))
        self.folder, self._mark, self._shared = folder / "run", str(folder), shared()
        self.metrics = self.folder / "metrics.jsonl"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._said = folder / "said"
        script = SCRIPT.format(moment=moment, call=call)
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, "train", str(run), "--output", str(self.folder)],
                stdout=said,
                stderr=said,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "TMPDIR": str(self.temporary),
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),  # made by an import
                    "RLINF_TEST_MARK": self._mark,
                },
                start_new_session=True,
            )
        wait_for(lambda: "NOW" in self.said() or self.process.poll() is not None, 60)

    def said(self) -> str:
        return self._said.read_text()


PLACES = [
    (moment, runtime)
    for moment in MOMENTS
    for runtime in ("inline", "processes")
    if not moment.startswith("closing") or (moment == "closing") == (runtime == "processes")
]


@pytest.mark.parametrize(("moment", "runtime"), PLACES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_signals_end_a_run_at_any_moment_and_leave_nothing(
    toys, tmp_path, moment, runtime, number
):
    command = Announced(tmp_path, runtime, *MOMENTS[moment])
    assert command.process.poll() is None, command.said()
    for _ in range(2):
        os.killpg(command.process.pid, number)
        time.sleep(0.05)
    began = time.monotonic()
    command.process.wait(60)
    assert time.monotonic() - began < 15
    over = 0 if moment.startswith("closing") else 130
    assert command.process.returncode == over, command.said()
    assert "Traceback" not in command.said()
    wait_for(lambda: command.named() == {}, 10)
    assert list(command.temporary.iterdir()) == []
    assert shared() <= command._shared
    assert not list(command.folder.rglob("*.tmp"))
    told: list[str] = []
    CheckpointStore(command.folder, 1, None).last(told.append)
    assert told == []


def test_two_signals_while_a_run_is_planned_leave_nothing(toys, tmp_path):
    command = Announced(tmp_path, "inline", MOMENTS["start"][0], 1)
    for _ in range(2):
        os.killpg(command.process.pid, signal.SIGINT)
        time.sleep(0.05)
    assert command.process.wait(60) == 130
    assert "Traceback" not in command.said()
    assert not command.folder.exists()


@pytest.mark.parametrize("runtime", ["inline", "processes"])
def test_a_worker_that_does_not_listen_is_not_waited_for(toys, tmp_path, runtime):
    """Two signals while a simulator hangs."""
    marker = tmp_path / "marker"
    fragile = {"name": "fragile", "at": 13, "how": "hang", "marker": str(marker)}
    changed = {"cluster": {"runtime": runtime}}
    command = Command(tmp_path, fragile, changed)
    wait_for(marker.exists, 30)
    time.sleep(0.5)
    for _ in range(2):
        os.kill(command.process.pid, signal.SIGINT)
        time.sleep(0.05)
    said = command.end(20)
    assert command.process.returncode == 130, said
    assert "Traceback" not in said
