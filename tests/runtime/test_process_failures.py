"""What goes wrong with processes, and what the driver is told."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from rlinf_core.errors import (
    ChannelClosed,
    PluginError,
    RuntimeFailure,
    StaleDataError,
    WorkerFailed,
)
from rlinf_core.placement import ProcessPlace
from rlinf_core.protocols.runtime import ChannelSpec, WorkerSpec
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.specs import ComponentRef, Kind


@pytest.fixture
def runtime():
    made = ProcessRuntime()
    yield made
    made.close()


def launch(runtime, name="group", processes=1, **options):
    return runtime.launch(WorkerSpec(name, "runtime_workers:Troubled"), processes, **options)


@pytest.fixture(autouse=True)
def _others():
    """Processes that earlier tests of this session have left on purpose, zygotes to be reused."""
    THERE[:] = children()
    yield
    THERE[:] = []


THERE: list[int] = []


def children() -> list[int]:
    """Return the processes below this one that this test began, zombies left out."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found = {os.getpid()}
    for _ in range(5):
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found - {os.getpid(), *THERE})


@contextmanager
def soon(seconds: float = 10.0):
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def after(seconds, function, *args):
    timer = threading.Timer(seconds, function, args)
    timer.start()
    return timer


# --- starting -----------------------------------------------------------------------------------


def test_case_r01_a_large_environment_variable_does_not_stop_the_start(runtime, monkeypatch):
    monkeypatch.setenv("LARGE", "x" * 200_000)
    place = ProcessPlace((), {"ALSO_LARGE": "y" * 200_000})
    group = launch(runtime, placement=(place, ProcessPlace(())))
    assert group.call("variable", "LARGE").wait() == ["x" * 200_000] * 2
    assert group.call("variable", "ALSO_LARGE").wait() == ["y" * 200_000, None]


def test_case_r01_a_worker_that_cannot_start_is_named_with_its_traceback(runtime):
    good = launch(runtime, "good")
    good.call("pid").wait()
    runtime.launch(WorkerSpec("bad", "rlinf_core.testing.workers:Unmade"), processes=2)
    with soon(), pytest.raises(WorkerFailed, match=r"bad\[.\].start failed") as caught:
        good.call("compute", 60).wait()
    assert "in __init__" in str(caught.value.cause.__cause__)
    with pytest.raises(WorkerFailed, match=r"bad\[.\].start failed"):
        good.call("pid")


# --- dying --------------------------------------------------------------------------------------


def test_case_r02_a_killed_worker_is_named_and_its_readers_are_told(runtime, tmp_path):
    channel, diary = runtime.channel("stream", ChannelSpec(capacity=2)), tmp_path / "diary"
    writer, reader = launch(runtime, "writer"), launch(runtime, "reader")
    [pid] = writer.call("pid").wait()
    reading = reader.call("read", channel, str(diary))
    writer.call("stream", channel)
    after(0.5, os.kill, pid, signal.SIGKILL)
    with soon(), pytest.raises(WorkerFailed, match=r"writer\[0\].stream failed: .*SIGKILL"):
        reading.wait()
    with soon():
        while not (diary.exists() and diary.read_text()):
            time.sleep(0.05)
    told = "ProducerGone: the channel 'stream' ends early: writer[0], which wrote to it, is gone"
    assert diary.read_text() == told


def test_case_r02_a_killed_worker_ends_the_drivers_own_wait(runtime):
    [pid] = launch(runtime, "idle").call("pid").wait()
    after(0.2, os.kill, pid, signal.SIGKILL)
    with soon(), pytest.raises(WorkerFailed, match=r"idle\[0\].idle failed: .*SIGKILL"):
        runtime.channel("empty").get()


def test_case_r02_a_killed_switchboard_is_named(runtime, tmp_path):
    channel = runtime.channel("stream")
    reading = launch(runtime).call("read", channel, str(tmp_path / "diary"))
    channel.put(1)
    os.kill(runtime.board.child.pid, signal.SIGKILL)
    with soon(), pytest.raises(RuntimeFailure, match="the switchboard.* is gone: .*SIGKILL"):
        reading.wait()
    with soon(), pytest.raises(RuntimeFailure, match="the switchboard.* is gone"):
        channel.put(2)


def test_case_r02_a_killed_switchboard_ends_the_drivers_own_wait(runtime):
    channel = runtime.channel("empty")
    channel.put(1)
    channel.get()
    after(0.2, os.kill, runtime.board.child.pid, signal.SIGKILL)
    with soon(), pytest.raises(RuntimeFailure, match="the switchboard.* is gone: .*SIGKILL"):
        channel.get()


def test_case_r02_a_killed_zygote_is_told(runtime):
    group = launch(runtime, processes=2)
    group.call("pid").wait()
    os.kill(runtime.zygote._process.pid, signal.SIGKILL)
    with soon(), pytest.raises(RuntimeFailure, match="its zygote ended with status -9"):
        group.call("compute", 60).wait()
    with soon():
        runtime.close()
        assert children() == []


def test_a_stopped_switchboard_can_be_interrupted_and_closed(runtime):
    group = launch(runtime)
    channel = runtime.channel("c")
    channel.put(1)
    group.call("pid").wait()
    os.kill(runtime.board.child.pid, signal.SIGSTOP)
    after(0.2, runtime.interrupt)
    with soon(), pytest.raises(KeyboardInterrupt):
        channel.get()
    with soon():
        runtime.close()
        assert children() == []


def test_an_end_of_file_in_a_workers_own_code_is_told(runtime):
    with pytest.raises(WorkerFailed, match="raise_end_of_file failed: EOFError: the file is"):
        launch(runtime).call("raise_end_of_file").wait()


@pytest.mark.parametrize("status", [0, 3])
def test_a_worker_that_leaves_is_told(runtime, status):
    group = launch(runtime)
    group.call("pid").wait()
    with soon(), pytest.raises(WorkerFailed, match=rf"group\[0\].leave failed: .* left {status}"):
        group.call("leave", status).wait()


def test_a_policy_that_is_not_there_is_told_at_once(runtime):
    ref = ComponentRef(Kind.DEQUEUE_POLICY, "x", "no_such:X", "rlinf-core", version("rlinf-core"))
    with pytest.raises(PluginError, match="no_such"):
        runtime.channel("c", ChannelSpec(policy=ref))


def test_a_policy_that_fails_is_told_with_its_traceback(runtime):
    target, number = "runtime_workers:Weird", version("rlinf-core")
    ref = ComponentRef(Kind.DEQUEUE_POLICY, "weird", target, "rlinf-core", number)
    channel = runtime.channel("c", ChannelSpec(policy=ref))
    channel.put(1)
    channel.put(2)
    with soon(), pytest.raises(RuntimeFailure, match="(?s)switchboard.*no weights at all"):
        channel.get()


# --- interrupting and closing -------------------------------------------------------------------


def test_an_interrupt_ends_one_wait_and_no_other(runtime):
    group, channel = launch(runtime), runtime.channel("empty")
    group.call("pid").wait()
    after(0.2, runtime.interrupt)
    with soon(), pytest.raises(KeyboardInterrupt):
        channel.get()
    assert len(group.call("pid").wait()) == 1
    channel.put("still works")
    assert channel.get() == "still works"
    runtime.interrupt()
    runtime.interrupt()
    with pytest.raises(KeyboardInterrupt):
        group.call("compute", 1).wait()
    group.call("pid").wait()


def test_close_kills_a_worker_that_does_not_listen(runtime):
    group = launch(runtime, processes=3)
    group.call("pid").wait()
    computing = group.call("compute", 60)
    time.sleep(0.2)
    with soon():
        runtime.close()
        assert children() == []
    with pytest.raises(RuntimeFailure, match="the runtime is closed"):
        launch(runtime, "other")
    with pytest.raises(RuntimeFailure, match="the runtime is closed"):
        runtime.channel("c").put(1)
    with pytest.raises(RuntimeFailure, match="the runtime is closed"):
        computing.wait()
    with pytest.raises(RuntimeFailure, match="the runtime is closed"):
        group.call("pid")
    assert not computing.done()
    runtime.interrupt()


def test_close_while_everything_still_starts(runtime):
    for number in range(4):
        launch(runtime, f"group{number}", 2)
    with soon():
        runtime.close()
        assert children() == []


def test_many_workers_start_and_end_and_leave_no_descriptor_and_no_memory():
    before = None
    for _ in range(3):
        made = ProcessRuntime()
        groups = [launch(made, f"group{number}", 4) for number in range(8)]
        with soon(30):
            pids = {pid for group in groups for pid in group.call("pid").wait()}
        assert len(pids) == 32
        channel = made.channel("c")
        channel.put(np.ones(10**6))
        assert channel.get().sum() == 10**6
        with soon(15):
            made.close()
        assert children() == []
        del made, groups, channel
        gc.collect()  # what was mapped goes with the last who could read it
        open_now = len(os.listdir("/proc/self/fd"))
        assert before in (None, open_now)
        before = open_now
    if Path("/dev/shm").is_dir():
        assert not [name for name in os.listdir("/dev/shm") if "rlinf" in name]


def test_what_a_worker_prints_goes_to_standard_error(runtime, capfd):
    group = launch(runtime)
    group.call("say", "a word").wait()
    runtime.close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "a word\n" in err


# --- channels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [InlineRuntime, ProcessRuntime])
def test_case_r03_fifty_writers_and_a_reader_that_does_not_read(make):
    """Of five keys one is not read until the end; nothing of the others waits for it."""
    runtime = make()
    channel = runtime.channel("keyed", ChannelSpec(capacity=8))
    writers, readers = launch(runtime, "writers", 50), launch(runtime, "readers", 5)
    writing = writers.call("put_keyed", channel, 6)
    with soon(120):
        read = readers.call("read_keyed", channel, 60, ranks=[1, 2, 3, 4]).wait()
        assert not writing.done()
        read[0] = readers.call("read_keyed", channel, 60, ranks=[0]).wait()[0]
        writing.wait()
    for key, got in enumerate(read):
        assert sorted(got) == [(key, r, n) for r in range(key, 50, 5) for n in range(6)]
    runtime.close()


def test_what_is_too_old_or_refused_gives_its_memory_back(runtime):
    channel = runtime.channel("fresh", ChannelSpec(max_staleness=0))
    channel.put(np.ones(10**6), version=1)
    channel.put("new", version=2)
    with pytest.raises(StaleDataError):
        channel.get()
    channel.close()
    with pytest.raises(ChannelClosed):
        channel.put(np.ones(10**6))
    assert runtime.memory._arena.taken == 0
