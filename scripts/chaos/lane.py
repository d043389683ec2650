"""A lane: one run after another in one folder, each resuming the last, and what is done to them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import world

from rlinf_core.errors import CheckpointError
from rlinf_core.runs.checkpoint import CheckpointStore

_START = 120.0  # seconds that a run gets until it has done two iterations
_ANSWER = 60.0  # seconds in which a run goes on, or ends
_GONE = 20.0  # seconds in which everything is gone after the end of the driver


@dataclass
class Kill:
    """What was done to whom, and what came of it."""

    runtime: str
    victim: str
    signal: str
    outcome: str = ""
    problem: str = ""
    said: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict:
        return asdict(self)


class Lane:
    """Runs that suffer.

    Args:
        folder: everything that they write lies there.
        runtime: the runtime that they use.
        seed: decides who is killed when.
    """

    def __init__(self, folder: Path, runtime: str, seed: str) -> None:
        self.kills: list[Kill] = []
        self._folder, self._runtime = folder, runtime
        self._chance = random.Random(seed)
        self._mark = uuid.uuid4().hex
        self._temporary, self._run = folder / "tmp", folder / "run"
        self._temporary.mkdir(parents=True)
        world.install(folder / "site")
        (folder / "small.yaml").write_text(json.dumps(world.run_file(runtime)))
        self._process: subprocess.Popen[str] | None = None
        self._said = folder / "said.txt"
        self._stopped = False

    def suffer(self, kills: int) -> None:
        """Kill so often; stop at a problem that leaves no run to go on with."""
        try:
            while len(self.kills) < kills and not self._stopped:
                if self._process is None and not self._start():
                    return
                time.sleep(self._chance.uniform(0.0, 1.0))
                if self._ended():  # because of what was done before
                    self._check_late_end()
                else:
                    self._strike()
        finally:
            self._end_everything()

    def stop(self) -> None:
        """Kill nobody any more, and leave nothing."""
        self._stopped = True
        self._end_everything()

    # --- a run -----------------------------------------------------------------------------------

    def _start(self) -> bool:
        site = str(self._folder / "site")
        before = self._steps()
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from rlinf_core.cli import main; main()"),
                    *("train", str(self._folder / "small.yaml"), "--output", str(self._run)),
                    *(["--resume"] if self._run.exists() else []),
                ],
                stdout=said,
                stderr=said,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join([site, os.environ.get("PYTHONPATH", "")]),
                    "TMPDIR": str(self._temporary),
                    "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "cache"),  # made by an import
                    "RLINF_CHAOS": self._mark,
                },
                start_new_session=True,
            )
        # Some are hit while they start.
        patience = _START if self._chance.random() < 0.8 else self._chance.uniform(0.0, 5.0)
        self._wait(lambda: self._ended() or self._lines() != before, patience)
        if self._stopped or not self._ended():
            return True
        self._note(Kill(self._runtime, "nobody", "none", problem="a run did not start"))
        return False

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _lines(self) -> int:
        path = self._run / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    _steps = _lines

    def _processes(self) -> dict[int, str]:
        """Return the living processes of the run, with the names that ``ps`` shows."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"RLINF_CHAOS={self._mark}".encode() not in (folder / "environ").read_bytes():
                    continue
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                name = (folder / "comm").read_text().strip()
                pid = int(folder.name)
                if state != "Z":
                    found[pid] = self._name(pid, int(parent), name)
        return found

    def _name(self, pid: int, parent: int, name: str) -> str:
        driver = self._process.pid if self._process is not None else 0
        if pid == driver:
            return "driver"
        if name.startswith(("simulation", "rollout", "training", "evaluation", "recording")):
            return name.partition("[")[0]
        if name == "switchboard":
            return name
        return "a child of the driver" if parent == driver else "another process"

    # --- a kill ----------------------------------------------------------------------------------

    def _strike(self) -> None:
        processes = self._processes()
        if not processes:
            return  # it has just begun, or ends because of what was done before
        victims = sorted(set(processes.values()))
        # A driver's death costs a start, a worker's does not.
        weights = [1 if name in ("driver", "switchboard", "training") else 3 for name in victims]
        victim = self._chance.choices(victims, weights)[0]
        pid = self._chance.choice([p for p, name in processes.items() if name == victim])
        number = self._chance.choices([signal.SIGKILL, signal.SIGSTOP], [3, 1])[0]
        kill = Kill(self._runtime, victim, number.name)
        before = self._lines()
        with contextlib.suppress(ProcessLookupError):
            if victim == "driver" and number == signal.SIGKILL and self._chance.random() < 0.5:
                other = self._chance.choice([p for p in processes if p != pid] or [pid])
                os.kill(other, signal.SIGSTOP)  # whoever is stopped must go with the driver, too
                kill.signal += f" (and SIGSTOP {processes[other]})"
            os.kill(pid, number)
            if victim == "driver" and number == signal.SIGSTOP:
                time.sleep(self._chance.uniform(0.5, 3.0))
                os.kill(pid, signal.SIGCONT)
        self._settle(kill, before)

    def _settle(self, kill: Kill, before: int) -> None:
        """Wait until the run goes on or has ended, and look at what is left."""
        began = time.monotonic()
        self._wait(lambda: self._ended() or self._lines() >= before + 2, _ANSWER)
        kill.seconds = round(time.monotonic() - began, 1)
        if self._stopped:
            return
        if not self._ended():
            kill.outcome = "went on"
            if self._lines() < before + 2:
                kill.problem = f"a hang: nothing in {_ANSWER:g} s"
                self._end_everything()
        else:
            kill.outcome = "ended"
            self._check_end(kill)
            self._process = None
        self._note(kill)

    def _check_late_end(self) -> None:
        kill = self.kills[-1] if self.kills else Kill(self._runtime, "nobody", "none")
        if kill.outcome != "went on" or kill.problem:
            kill.problem = kill.problem or "a run ended by itself"
        kill.outcome = "ended later"
        self._check_end(kill)
        self._process = None
        if kill.problem:
            kill.said = self._said.read_text(errors="replace")[-3000:]

    def _check_end(self, kill: Kill) -> None:
        assert self._process is not None
        said, status = self._said.read_text(errors="replace"), self._process.returncode
        self._wait(lambda: not self._processes(), _GONE)
        errors = [line for line in said.splitlines() if line.startswith("error:")]
        kill.said = errors[0] if errors else ""
        if left := self._processes():
            kill.problem = f"processes left: {left}"
        elif files := [str(path) for path in self._temporary.rglob("*")]:
            kill.problem = f"temporary files left: {files}"
        elif shared := [p for p in Path("/dev/shm").glob("*") if "rlinf" in p.name]:
            kill.problem = f"shared memory left: {shared}"
        elif status == 0 or (status != 1 and not kill.signal.startswith("SIGKILL")):
            kill.problem = f"it ended with status {status}"
        elif status == 1 and len(errors) != 1:
            kill.problem = f"{len(errors)} errors instead of one"
        elif any(line.startswith("Traceback") for line in said.splitlines()):
            kill.problem = "an error without a type"
        elif damage := self._damage():
            kill.problem = damage
        if kill.problem:
            self._end_everything()

    def _damage(self) -> str:
        """Return what is wrong with the checkpoints, of which every one must be whole."""
        told: list[str] = []
        with contextlib.suppress(CheckpointError):
            CheckpointStore(self._run, keep=1, best=None).last(told.append)
        return "; ".join(told)

    def _note(self, kill: Kill) -> None:
        if kill.problem:
            kill.said = self._said.read_text(errors="replace")[-3000:]
        self.kills.append(kill)
        told = kill.problem or kill.outcome
        line = f"{kill.runtime}: {kill.signal} {kill.victim}: {told} ({kill.seconds} s)"
        print(line, "" if kill.problem else kill.said[:150], file=sys.stderr, flush=True)

    def _end_everything(self) -> None:
        """Kill what there still is, after a problem and at the end."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped and not condition() and time.monotonic() < until:
            time.sleep(0.05)
