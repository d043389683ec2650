"""What hangs or stands still, and what a clock that jumps does: nothing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rlinf_core
from rlinf_core.errors import DeadlineExceeded, RuntimeFailure, WorkerFailed
from rlinf_core.protocols.runtime import Deadlines, WorkerSpec
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.runtime.zygote import Zygote

HERE = Path(__file__).parent


@pytest.fixture
def runtime():
    made = ProcessRuntime()
    yield made
    made.close()


def launch(runtime, name="group", processes=1, **deadlines):
    spec = WorkerSpec(
        name, "runtime_workers:Troubled", deadlines=Deadlines(**{"call": 2.0, **deadlines})
    )
    group = runtime.launch(spec, processes)
    group.call("pid").wait()
    return group


def stop(pid: int) -> None:
    """Stop a process, for 40 s at most."""
    os.kill(pid, signal.SIGSTOP)
    relief = threading.Timer(40.0, _go_on, (pid,))
    relief.daemon = True
    relief.start()


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_stopped_worker_is_killed_when_its_deadline_is_over(runtime):
    group = launch(runtime, processes=2)
    pid = group.call("pid").wait()[1]
    stop(pid)
    began = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"group\[1\].compute.*more than 2 s") as caught:
        group.call("compute", 0.1).wait()
    assert 1.5 < time.monotonic() - began < 10
    assert isinstance(caught.value.cause, DeadlineExceeded)
    while alive(pid):
        assert time.monotonic() - began < 10
        time.sleep(0.05)


def test_a_stopped_switchboard_is_killed_and_named(runtime):
    group = launch(runtime)
    stop(runtime.board.child.pid)
    began = time.monotonic()
    with pytest.raises(RuntimeFailure, match="switchboard.*did not answer for 2 s") as caught:
        group.call("read", runtime.channel("empty"), os.devnull).wait()
    assert isinstance(caught.value, DeadlineExceeded)
    assert time.monotonic() - began < 15


def test_a_stopped_zygote_is_killed_and_named(runtime):
    group = launch(runtime, call=100.0)
    launch(runtime, "other", call=2.0)  # whose deadline says how patient the runtime is
    stop(runtime.zygote._process.pid)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="zygote.*did not answer for 2 s"):
        group.call("compute", 60).wait()
    assert time.monotonic() - began < 20


def test_a_worker_that_a_stopped_zygote_does_not_fork_is_named(runtime):
    launch(runtime, call=100.0)
    stop(runtime.zygote._process.pid)
    late = WorkerSpec("late", "runtime_workers:Troubled", deadlines=Deadlines(start=2.0))
    began = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"late\[0\].start failed.*its process has not begun"):
        runtime.launch(late).call("pid").wait()
    assert time.monotonic() - began < 10


def test_imports_that_never_end_are_told(tmp_path, monkeypatch):
    (tmp_path / "sleeps_at_import.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = ProcessRuntime()
    spec = WorkerSpec("group", "sleeps_at_import:Nobody", deadlines=Deadlines(start=3.0))
    with pytest.raises(WorkerFailed, match=r"group\[0\].start failed.*still at its imports"):
        made.launch(spec).call("pid").wait()
    made.close()


def test_a_deadlock_is_told_with_who_waits_for_what(runtime):
    groups = [launch(runtime, name) for name in ("one", "other")]
    for number, group in enumerate(groups):
        future = group.call("read", runtime.channel(f"channel {number}"), os.devnull)
    with pytest.raises(WorkerFailed, match="waits as everybody does") as caught:
        future.wait()
    assert "one[0] waits for an item in 'channel 0'" in str(caught.value)
    assert "other[0] waits for an item in 'channel 1'" in str(caught.value)


DRIVER = """
import sys
sys.path.insert(0, {here!r})
from rlinf_core.protocols.runtime import Deadlines, WorkerSpec
from rlinf_core.runtime.{module} import {runtime}
if __name__ == "__main__":
    runtime = {runtime}()
    spec = WorkerSpec("group", "runtime_workers:Troubled", deadlines=Deadlines(call=3.0))
    group = runtime.launch(spec)
    group.call("pid").wait()
    print("ready", flush=True)
    group.call("compute", 1.5).wait()
    group.call("compute", 1.5).wait()
    runtime.close()
    print("done", flush=True)
"""


def test_a_driver_that_was_stopped_blames_nobody_for_it():
    """Ctrl-Z, say: time in which nobody could look does not count."""
    code = DRIVER.format(here=str(HERE), module="processes", runtime="ProcessRuntime")
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(driver.pid, signal.SIGSTOP)
    time.sleep(6)
    os.killpg(driver.pid, signal.SIGCONT)
    out, _ = driver.communicate(timeout=30)
    assert out == "done\n"
    assert driver.returncode == 0


def test_a_stopped_zygote_of_a_killed_driver_ends():
    code = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(HERE.parent / 'simulation')!r})\n"
        "from rlinf_core.runtime.zygote import Zygote\n"
        "zygote = Zygote(['simulation_toys'])\n"
        "child = zygote.fork('simulation_toys:sleep')\n"
        "print(zygote._process.pid, child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    driver.kill()
    driver.communicate()
    began = time.monotonic()
    while any(alive(pid) for pid in pids):
        assert time.monotonic() - began < 10
        time.sleep(0.05)


def test_a_zygote_outlives_the_thread_that_asked_for_it():
    made: list[Zygote] = []
    thread = threading.Thread(target=lambda: made.append(Zygote(["json"])))
    thread.start()
    thread.join()
    time.sleep(0.5)
    child = made[0].fork("builtins:print")
    assert child.pid
    made[0].close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- clocks --------------------------------------------------------------------------------------


def test_nothing_that_decides_reads_a_clock_that_can_jump():
    core = Path(rlinf_core.__file__).parent
    for path in [
        p for part in ("runtime", "runs", "simulation") for p in core.glob(f"{part}/**/*.py")
    ]:
        assert not re.search(r"time\.time(_ns)?\b|datetime\.|utcnow", path.read_text()), path


@pytest.mark.parametrize("make", [InlineRuntime, ProcessRuntime])
@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_does_no_harm(make, jump, monkeypatch):
    runtime = make()
    group = launch(runtime, call=20.0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    group.call("jump", jump).wait()
    channel = runtime.channel("c")
    channel.put(1)
    assert channel.get() == 1
    assert len(group.call("pid").wait()) == 1
    group.call("compute", 1.2).wait()
    runtime.close()
