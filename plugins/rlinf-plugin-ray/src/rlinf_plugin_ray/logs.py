"""What a worker wrote last, and where it is: read and asked for on the worker's own machine.

Ray sends what a worker writes to files there. A worker that gets :data:`STACKS` adds where each of
its threads is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

LINES, BYTES = 40, 1 << 15
"""Most that is shown of each file."""

STACKS = signal.SIGUSR2
"""The signal at which a worker writes where it is."""

_NOISE = re.compile(  # Ray's own notes, and what it says of a crash a second time
    rb":(?:job_id|actor_name|task_name):|\[.* logging\.cc:\d+\]|PC: @|    @ |Extension modules:"
)


def own_files() -> tuple[str, ...]:
    """Return the files that standard output and error of this process go to; Linux tells."""
    found: list[str] = []
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if Path(path).is_file() and path not in found:
                found.append(path)
    return tuple(found)


def answer_to_signal() -> None:
    """Make this process write where it is when it crashes, or gets :data:`STACKS`."""
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(STACKS, file=2, all_threads=True)


def tail(files: Iterable[str]) -> str:
    """Return the last lines of some files, one file after the other; "" where there are none."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # where this is the process that writes to them
            stream.flush()
    lines: list[bytes] = []
    for file in files:
        with contextlib.suppress(OSError), Path(file).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - BYTES))
            written = stream.read().splitlines()
            lines += [line for line in written if line.strip() and not _NOISE.match(line)][-LINES:]
    return b"\n".join(lines).decode(errors="replace")


def stacks(pid: int, files: Sequence[str], seconds: float = 1.0) -> str:
    """Have a process write where it is, and return its last lines; it may be stopped, or gone."""
    before, deadline = _sizes(files), time.monotonic() + seconds
    with contextlib.suppress(OSError):
        os.kill(pid, STACKS)
    while _sizes(files) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)  # for the rest of what it writes
    return tail(files)


def kill(pid: int) -> None:
    """End a process that may not listen to Ray any more."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _sizes(files: Iterable[str]) -> list[int]:
    return [Path(file).stat().st_size for file in files if Path(file).exists()]
