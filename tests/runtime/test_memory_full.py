"""Shared memory that cannot be had: an error with what to do, and not a signal."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rlinf_core.errors import RuntimeFailure, SimulatorError, WorkerFailed
from rlinf_core.protocols.runtime import WorkerSpec
from rlinf_core.runtime.arena import Arena
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.simulation.memory import Field, SharedArrays


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nameless memory that comes from a file system of 4 MiB."""
    folder = tmp_path / "device"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")

    def memfd_create(name: str, flags: int = 0) -> int:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR)

    monkeypatch.setattr(os, "memfd_create", memfd_create)
    yield folder
    monkeypatch.undo()
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_device_is_told_and_what_was_stored_stays(device: Path) -> None:
    arena = Arena()
    small = np.arange(20_000)
    kept = arena.store([memoryview(small)])
    with pytest.raises(RuntimeFailure, match="no shared memory for 8.0 MiB more.*No space left"):
        arena.store([memoryview(np.zeros(1_000_000)).cast("B")])
    assert arena.segments == 1
    again = arena.store([memoryview(small)])
    assert again.number != kept.number
    arena.close()


def test_a_device_that_fills_up_is_told_before_anything_is_written(device: Path) -> None:
    """Blocks of one segment, of which the last ones find no memory."""
    arena, item = Arena(), memoryview(np.zeros(100_000, np.uint8))
    with pytest.raises(RuntimeFailure, match="No space left"):
        _ = [arena.store([item]) for _ in range(100)]
    assert arena.segments == 1
    assert 10 < arena.taken < 40
    arena.close()


def test_a_simulator_whose_observations_find_no_memory_is_told(device: Path) -> None:
    fields = [Field("obs.images", (100, 128, 128, 3), "uint8"), Field("frames", (1,), "uint8")]
    arrays = SharedArrays(fields)
    with pytest.raises(SimulatorError, match="no shared memory for 4.7 MiB of observations"):
        arrays.reserve(["obs.images"])
    arrays.reserve(["frames"])
    arrays["frames"][:] = 1
    arrays.close()


@pytest.mark.parametrize("name", ["memfd_create", "ftruncate", "posix_fallocate"])
def test_whatever_the_system_refuses_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    before = len(os.listdir("/proc/self/fd"))
    arena = Arena()
    monkeypatch.setattr(os, name, refuse)
    with pytest.raises(RuntimeFailure, match="no shared memory.*Cannot allocate memory.*collect"):
        arena.store([memoryview(np.zeros(10_000))])
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_that_gets_no_memory_is_told_as_one_that_failed() -> None:
    runtime = ProcessRuntime()
    group = runtime.launch(WorkerSpec("group", "runtime_workers:Troubled"))
    group.call("limit_files", 10_000).wait()  # of memory without a name, too
    with pytest.raises(WorkerFailed, match=r"group\[0\].large failed.*no shared memory") as caught:
        group.call("large").wait()
    assert isinstance(caught.value.cause, RuntimeFailure)
    runtime.close()
