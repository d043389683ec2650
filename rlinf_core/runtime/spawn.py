"""Starting a process that cannot outlive this one, whoever kills whom.

Linux sends a process a signal of its choice when its parent ends (``PR_SET_PDEATHSIG``), and takes
for the parent the *thread* that started it. So processes are started by a thread that ends with
this process and not before, whichever thread asks for one.
"""

from __future__ import annotations

import ctypes
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

_Process = subprocess.Popen[bytes]
_Jobs = queue.SimpleQueue[tuple["Future[_Process]", Callable[[], _Process]]]

_lock = threading.Lock()
_starters: dict[int, _Jobs] = {}
"""What the starting thread is to do, by process id: a fork takes the dict along, not the thread."""


def spawn(command: Sequence[str], **options: Any) -> _Process:
    """Start a process as ``subprocess.Popen`` does."""
    with _lock:
        if os.getpid() not in _starters:
            jobs: _Jobs = queue.SimpleQueue()
            threading.Thread(target=_start, args=(jobs,), name="starter", daemon=True).start()
            _starters[os.getpid()] = jobs
    started: Future[_Process] = Future()
    _starters[os.getpid()].put((started, lambda: subprocess.Popen(command, **options)))
    return started.result()


def die_with_parent(parent: int, how: int) -> None:
    """Ask for a signal when the parent ends; leave at once where it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(how))  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _start(jobs: _Jobs) -> None:
    while True:
        started, start = jobs.get()
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)
