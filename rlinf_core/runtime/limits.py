"""What the system lets a process have."""

from __future__ import annotations

import contextlib
import os
import resource


def raise_open_files() -> None:
    """Allow as many open files as the system does: every segment of shared memory is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
