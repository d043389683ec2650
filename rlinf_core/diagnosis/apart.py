"""Calling a function in a process of its own, so that whatever it does harms nobody.

It may crash, hang, exit, print or ask questions: its standard input is closed, what it prints is
kept aside, and after a time it is ended together with everything that it started. Argument and
result are plain data; the other end is ``child.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlinf_core.diagnosis.child import main; main()"
)
"""The child finds what this process finds, whatever was put on its path."""

_GRACE = 2.0  # seconds after the child should have ended itself, saying where it hung
_SHOWN = 40  # last lines of what it printed that are kept


@dataclass(frozen=True)
class Call:
    """A function to call in a process of its own.

    Args:
        function: ``"package.module:name"``; takes one argument and returns plain data.
        argument: plain data.
        seconds: time that it may take, the start of its process included.
    """

    function: str
    argument: Any
    seconds: float


@dataclass(frozen=True)
class Answer:
    """What came of a call.

    Args:
        value: what the function returned; None where there is a fault.
        fault: why there is no value, as the end of a sentence; empty where there is one.
        output: the last lines that the process printed, on standard output or standard error.
        traceback: of what the function raised.
    """

    value: Any = None
    fault: str = ""
    output: str = ""
    traceback: str = ""


def call_all(calls: Iterable[Call]) -> list[Answer]:
    """Make several calls, as many at once as there are processors; answers in their order."""
    waiting, children = list(calls), _Children()
    if not waiting:
        return []
    with ThreadPoolExecutor(max_workers=max(2, usable_processors())) as pool:
        try:
            return list(pool.map(lambda call: _call(call, children), waiting))
        except BaseException:  # Ctrl-C: the children, in sessions of their own, were not told
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Children:
    """The processes that are running; once ended, no other starts."""

    def __init__(self) -> None:
        self._lock, self._running, self._over = threading.Lock(), set[int](), False

    def start(self, command: list[str], output: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._over:
                raise KeyboardInterrupt
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that what it starts can be ended with it
            )
            self._running.add(child.pid)
        return child

    def finish(self, child: subprocess.Popen[bytes]) -> None:
        """End a child and whatever it has started."""
        with self._lock:
            _kill(child.pid)
            child.wait()
            self._running.discard(child.pid)

    def end(self) -> None:
        with self._lock:
            self._over = True
            for pid in self._running:
                _kill(pid)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _call(call: Call, children: _Children) -> Answer:
    with tempfile.TemporaryDirectory(prefix="rlinf-") as folder:
        answer, output = Path(folder, "answer.json"), Path(folder, "output")
        command = [sys.executable, "-c", _START, json.dumps(sys.path), str(answer)]
        command += [str(call.seconds), call.function, json.dumps(call.argument)]
        began = time.monotonic()
        with output.open("wb") as file:
            child = children.start(command, file)
        try:
            code: int | None = child.wait(call.seconds + _GRACE)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            children.finish(child)
        late = code is None or time.monotonic() - began >= call.seconds
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        shown = "\n".join(lines[-_SHOWN:])
        try:
            given = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Answer(fault=_fault(code, late, call.seconds), output=shown)
        return Answer(given.get("value"), given.get("fault", ""), shown, given.get("traceback", ""))


def _fault(code: int | None, late: bool, seconds: float) -> str:
    if late:
        return f"gave no answer within {seconds:g} s and was ended"
    assert code is not None  # else it was late
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"ended its process by {signal.Signals(-code).name}"
    return f"ended its process with exit code {code} before it could answer"
