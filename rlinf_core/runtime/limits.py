"""What the system lets a process have, and what it shows of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys


def raise_open_files() -> None:
    """Allow as many open files as the system does: every segment of shared memory is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def show_name(name: str) -> None:
    """Make ``ps`` and ``top`` show a name for this process; Linux keeps 15 bytes of it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
