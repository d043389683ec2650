"""Logs: what a worker writes to its standard output and error, passed on and its end remembered.

Both streams of a worker are one pipe, whose other end the driver reads: each line goes to the
driver's own standard error, after who wrote it, and the last ones are kept for the error that tells
of the worker's end. Nothing is written to disk, so nothing is left there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections import deque

_LINES = 20  # that an error shows
_WIDTH = 400  # letters of one line that are kept
STACKS = signal.SIGUSR2
"""A worker that gets this signal writes where each of its threads is."""


class WorkerLog:
    """The driver's end of one worker's output.

    Args:
        name: who writes, such as ``rollout[0]``; each line that is passed on begins with it.
    """

    def __init__(self, name: str) -> None:
        reading, self.fd = os.pipe()
        self._name = name
        self._tail: deque[str] = deque(maxlen=_LINES)
        self._changed = threading.Condition()
        self._lines = 0
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()

    def handed_over(self) -> None:
        """Close this process's copy of the writing end; the worker has its own."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def tail(self, seconds: float) -> str:
        """Return the last lines; wait up to ``seconds`` for the end of what a dead worker wrote."""
        self._thread.join(seconds)
        with self._changed:
            return "\n".join(self._tail)

    def wait_for_more(self, seconds: float, quiet: float = 0.1) -> None:
        """Wait until something was written and then nothing for a moment."""
        with self._changed:
            before = self._lines
            self._changed.wait_for(lambda: self._lines != before, seconds)
            while before != self._lines:
                before = self._lines
                self._changed.wait(quiet)

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as pipe:
            for line in pipe:
                text = line.decode(errors="replace").rstrip("\n")
                with self._changed:
                    self._tail.append(text[:_WIDTH])
                    self._lines += 1
                    self._changed.notify_all()
                with contextlib.suppress(Exception):  # a closed stderr must not stop the worker
                    sys.stderr.write(f"{self._name}: {text}\n")


def write_to(fd: int) -> None:
    """Make a pipe this process's standard output and error, also for what crashes in C code."""
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(STACKS, file=2, all_threads=True)
