"""The zygote: starting, failing in words, and leaving nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlinf_core.errors import RuntimeFailure
from rlinf_core.runtime.zygote import Zygote

HERE = Path(__file__).parent


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote(imports=["simulation_toys"])
    yield made
    made.close()


def gone(pid: int, within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if status == "Z":  # dead; whoever adopted it has not asked yet
            return True
        time.sleep(0.02)
    return False


def test_children_come_with_imports_done_one_thread_and_their_arguments(zygote: Zygote) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"through a descriptor")
        file.flush()
        child = zygote.fork("simulation_toys:echo", {"size": 3}, [file.fileno()])
    facts = child.receive()
    assert facts["arguments"] == {"size": 3}
    assert facts["file"] == b"through a descriptor"
    assert facts["threads"] == "1"
    assert facts["sigint"]
    assert facts["sigterm"]
    assert "simulation_toys" in facts["modules"]
    assert "torch" not in facts["modules"]
    child.send("hello")
    assert child.receive() == "hello"


def test_starting_and_forking_do_not_wait() -> None:
    start = time.monotonic()
    zygote = Zygote(imports=["simulation_slow_import"])
    child = zygote.fork("simulation_toys:echo")
    assert time.monotonic() - start < 0.5
    child.receive()
    assert time.monotonic() - start > 1.0
    zygote.close()


def test_many_children_share_one_import(zygote: Zygote) -> None:
    children = [zygote.fork("simulation_toys:echo", number) for number in range(5)]
    facts = [child.receive() for child in children]
    assert [fact["arguments"] for fact in facts] == list(range(5))
    assert len({fact["parent"] for fact in facts}) == 1
    assert len({child.pid for child in children}) == 5


def test_an_exception_in_a_child_arrives_with_its_traceback(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:fail")
    with pytest.raises(
        RuntimeFailure, match=r"(?s)simulation_toys:fail.*ZeroDivisionError: on purpose"
    ):
        child.receive()
    assert child.exit_status(2.0) == 1


def test_a_missing_target_is_named(zygote: Zygote) -> None:
    with pytest.raises(RuntimeFailure, match="no attribute 'nobody'"):
        zygote.fork("simulation_toys:nobody").receive()


def test_a_silent_death_is_told_with_status_and_standard_error(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:leave")
    with pytest.raises(RuntimeFailure, match=r"(?s)left 7.*out of memory, say"):
        child.receive()


def test_a_killed_child_is_told_with_the_signal(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:sleep")
    assert child.receive() == "asleep"
    assert child.exit_status() is None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RuntimeFailure, match="ended by SIGKILL"):
        child.receive()
    with pytest.raises(RuntimeFailure, match="ended by SIGKILL"):
        child.send("anyone there?")


def test_end_kills_a_child_that_does_not_listen(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:sleep")
    child.receive()
    child.end(timeout=0.1)
    assert child.exit_status(2.0) == -signal.SIGKILL


def test_case_r01_a_large_environment_variable_does_not_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "SMALL", "here")
    # putenv accepts what execve will refuse
    monkeypatch.setitem(os.environ, "LARGE", "x" * 200_000)
    zygote = Zygote(environment={"ALSO_LARGE": "y" * 150_000})
    child = zygote.fork("simulation_toys:echo")
    child.receive()
    answers = []
    for name in ("SMALL", "LARGE", "ALSO_LARGE"):
        child.send("$" + name)
        answers.append(child.receive())
    assert answers == ["here", "x" * 200_000, "y" * 150_000]
    zygote.close()


def test_case_r01_what_cannot_start_is_named_with_its_traceback_within_seconds() -> None:
    start = time.monotonic()
    zygote = Zygote(imports=["no_such_simulator"])
    with pytest.raises(
        RuntimeFailure, match=r"(?s)simulation_toys:echo.*No module named 'no_such_s"
    ):
        zygote.fork("simulation_toys:echo").receive()
    zygote.close()
    assert time.monotonic() - start < 10


def test_case_r01_an_interpreter_that_dies_at_start_is_told_with_its_standard_error() -> None:
    zygote = Zygote(environment={"PYTHONHOME": "/nowhere"})
    with pytest.raises(RuntimeFailure, match=r"(?s)its zygote ended with status.*encodings"):
        zygote.fork("simulation_toys:echo").receive()
    zygote.close()


def test_close_ends_children_and_may_come_twice(zygote: Zygote) -> None:
    children = [zygote.fork(f"simulation_toys:{name}") for name in ("echo", "sleep")]
    pids = [child.pid for child in children]
    start = time.monotonic()
    zygote.close()
    zygote.close()
    assert time.monotonic() - start < 5
    assert all(gone(pid) for pid in pids)
    with pytest.raises(RuntimeFailure, match="cannot start"):
        zygote.fork("simulation_toys:echo")


DRIVER = """
import sys, time
sys.path[:0] = [{here!r}]
from rlinf_core.runtime.zygote import Zygote
zygote = Zygote(["simulation_toys"])
children = [zygote.fork("simulation_toys:" + name) for name in ("echo", "sleep", "echo")]
print(zygote._process.pid, *[child.pid for child in children], flush=True)
{ending}
"""
ENDINGS = {
    "exit": "sys.exit(0)",
    "exception": "raise ValueError('the driver failed')",
    "hard exit": "import os; os._exit(3)",
    "killed": "time.sleep(1000)",
    "interrupted": "time.sleep(1000)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_case_r02_nothing_is_left_however_the_driver_ends(ending: str) -> None:
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    code = DRIVER.format(here=str(HERE), ending=ENDINGS[ending])
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )
    assert driver.stdout is not None
    with driver.stdout:
        pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 4
    if ending == "killed":
        driver.kill()
    if ending == "interrupted":  # as Ctrl-C does: the whole foreground group
        os.killpg(driver.pid, signal.SIGINT)
    driver.wait(10)
    assert all(gone(pid) for pid in pids)
    if os.path.isdir("/dev/shm"):
        assert not [name for name in set(os.listdir("/dev/shm")) - before if "rlinf" in name]


def test_a_killed_zygote_takes_its_children_along(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:sleep")
    child.receive()
    os.kill(zygote._process.pid, signal.SIGKILL)
    assert gone(child.pid)
    with pytest.raises(RuntimeFailure, match="its zygote ended with status -9"):
        child.receive()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process within the block, for 20 s at most."""
    os.kill(pid, signal.SIGSTOP)
    relief = threading.Timer(20.0, os.kill, (pid, signal.SIGCONT))
    relief.start()
    try:
        yield
    finally:
        relief.cancel()
        relief.join()


def test_a_stopped_zygote_holds_up_neither_the_end_of_its_children_nor_its_own(
    zygote: Zygote,
) -> None:
    children = [zygote.fork("simulation_toys:sleep") for _ in range(4)]
    for child in children:
        child.receive()
    with stopped(zygote._process.pid):
        start = time.monotonic()
        for child in children:
            child.end(timeout=0.1)
        assert time.monotonic() - start < 5
        assert zygote.condition() == "its zygote does not answer"
        assert all(gone(child.pid) for child in children)
        zygote.close()
        assert time.monotonic() - start < 15
        assert not zygote.alive


def test_the_death_of_a_child_of_a_stopped_zygote_is_told(zygote: Zygote) -> None:
    child = zygote.fork("simulation_toys:sleep")
    child.receive()
    with stopped(zygote._process.pid):
        start = time.monotonic()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(RuntimeFailure, match="went away.*its zygote does not answer"):
            child.receive()
        assert time.monotonic() - start < 10
        zygote.close()


def test_a_late_answer_is_not_taken_for_that_to_another_question(zygote: Zygote) -> None:
    running, ended = zygote.fork("simulation_toys:sleep"), zygote.fork("simulation_toys:leave")
    running.receive()
    with pytest.raises(RuntimeFailure, match="left 7"):
        ended.receive()
    with stopped(zygote._process.pid):
        assert ended.exit_status() is None
        os.kill(zygote._process.pid, signal.SIGCONT)
    assert running.exit_status(0.2) is None
    assert ended.exit_status(2.0) == 7
