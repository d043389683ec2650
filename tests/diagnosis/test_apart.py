"""A function in a process of its own: whatever it does, the caller gets an answer and goes on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from rlinf_core.diagnosis.apart import Answer, Call, call_all


@pytest.fixture
def ask(toys):
    """Return a function that calls the body of a function apart."""

    def ask(body: str, argument: object = None, seconds: float = 30.0, head: str = "") -> Answer:
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        (toys / "zoo_toy.py").write_text(
            f"import os, signal, subprocess, sys, time\n{head}\ndef toy(argument):\n{lines}\n"
        )
        (answer,) = call_all([Call("zoo_toy:toy", argument, seconds)])
        return answer

    return ask


def test_an_answer_comes_back_with_what_was_printed(ask, capfd):
    answer = ask(
        "print('out'); print('err', file=sys.stderr); return [argument, os.getpid()]", {"a": 1}
    )
    assert answer.fault == ""
    assert answer.value[0] == {"a": 1}
    assert answer.value[1] != os.getpid()
    assert answer.output == "out\nerr"
    assert capfd.readouterr() == ("", ""), "nothing reaches the caller's own output"


def test_what_it_raises_is_told_with_its_traceback(ask):
    answer = ask("raise LookupError('no such thing')")
    assert answer.value is None
    assert answer.fault == "LookupError: no such thing"
    assert "zoo_toy.py" in answer.traceback


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended its process by SIGSEGV"),
        ("os._exit(3)", "ended its process with exit code 3 before it could answer"),
        ("os._exit(0)", "ended its process with exit code 0 before it could answer"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("input('your name? ')", "EOFError: EOF when reading a line"),
        ("return {1, 2}", "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_an_end_of_every_kind_is_told(ask, body, fault):
    assert ask(body).fault == fault


def test_what_hangs_is_ended_and_says_where_it_hung(ask):
    began = time.monotonic()
    answer = ask("def stuck():\n    time.sleep(60)\nstuck()", seconds=1.5)
    assert answer.fault == "gave no answer within 1.5 s and was ended"
    assert "in stuck" in answer.output
    assert time.monotonic() - began < 20


def test_what_refuses_to_end_is_ended_with_all_that_it_started(ask, tmp_path):
    note = tmp_path / "pid"
    body = (
        "import faulthandler; faulthandler.cancel_dump_traceback_later()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(argument, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    assert "gave no answer" in ask(body, str(note), seconds=2.0).fault
    assert _gone(int(note.read_text()))


def test_what_it_left_running_is_ended_too(ask, tmp_path):
    note = tmp_path / "pid"
    body = (
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(argument, 'w').write(str(child.pid))\nreturn 1"
    )
    assert ask(body, str(note)).value == 1
    assert _gone(int(note.read_text()))


def test_threads_that_never_end_are_not_waited_for(ask):
    head = "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()"
    began = time.monotonic()
    assert ask("return 1", head=head).value == 1
    assert time.monotonic() - began < 20


def test_it_cannot_read_the_callers_command_line(ask, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rlinf", "plugins", "check"])
    assert ask("return sys.argv[1:]").value == []


def test_answers_come_in_the_order_of_the_calls(toys):
    (toys / "zoo_order.py").write_text(
        "import time\ndef slow(n):\n    time.sleep(0.3 * (3 - n))\n    return n\n"
    )
    answers = call_all(Call("zoo_order:slow", number, 30.0) for number in range(4))
    assert [answer.value for answer in answers] == [0, 1, 2, 3]
    assert call_all([]) == []


def test_an_interrupt_ends_the_children_at_once(toys):
    (toys / "zoo_wait.py").write_text(
        "import os, time\ndef wait(file):\n    open(file, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
    )
    note = toys / "pid"

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (note.exists() and note.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call_all([Call("zoo_wait:wait", str(note), 60.0)])
    assert time.monotonic() - began < 30
    assert _gone(int(note.read_text()))


def _gone(pid: int) -> bool:
    """Return whether a process has ended, waiting for it a little."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True  # ended, and whoever adopted it has yet to notice
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
