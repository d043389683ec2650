"""What runs in a zygote and in the children that it forks; ``zygote.py`` is the driver's half."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from rlinf_core.runtime.connection import Connection, Failure
from rlinf_core.runtime.spawn import die_with_parent

DRIVERS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or a batch system sends to a whole group: the driver's to answer."""
_GRACE = 2.0  # seconds that children get to end by themselves

_statuses: dict[int, int | None] = {}
"""Exit status of every child by process id; None while it runs."""


def serve(fd: int, driver: int) -> NoReturn:
    """Run the zygote on the inherited socket ``fd`` until the driver goes away."""
    faulthandler.enable(all_threads=True)  # in every child, too: a crash says where it was
    die_with_parent(driver, signal.SIGKILL)  # while it imports it has no children to end
    control, failure = Connection(socket.socket(fileno=fd)), None
    with contextlib.suppress(EOFError, OSError):
        variables, imports = control.receive()
        os.environ.update(variables)
        try:
            for name in imports:
                importlib.import_module(name)
        except BaseException:
            failure = Failure(traceback.format_exc())
        die_with_parent(driver, signal.SIGCONT)  # a stopped one goes on, and ends its children
        signal.signal(signal.SIGCHLD, _reap)  # not before: imports may wait for their own children
        gc.collect()
        gc.freeze()  # the collector will not touch, and so not copy, pages shared with children
        while True:
            verb, subject, timeout = control.receive()
            if verb == "fork":
                _fork(control, failure, subject)
            else:
                _wait([subject[0]], timeout)
                control.send((subject, _statuses.get(subject[0])))
    _wait(list(_statuses), _GRACE)
    for pid, status in list(_statuses.items()):
        if status is None:
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _fork(control: Connection, failure: Failure | None, work: bytes) -> None:
    fds = control.fds
    if failure is None:
        zygote, pid = os.getpid(), os.fork()
        if pid == 0:
            control.close()
            _run(zygote, work, fds)
        _statuses.setdefault(pid, None)  # it may have ended already
    else:
        with contextlib.suppress(OSError):
            Connection(socket.socket(fileno=os.dup(fds[0]))).send(failure)
    for fd in fds:
        os.close(fd)


def _run(zygote: int, work: bytes, fds: list[int]) -> NoReturn:
    """Be the child: call the target, leave with its outcome, and run none of the zygote's exits."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for (
            number
        ) in DRIVERS_SIGNALS:  # inherited from the zygote, but an import may have changed it
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(zygote, signal.SIGKILL)  # a second belt, for a child deep in C code
        connection = Connection(socket.socket(fileno=fds[0]))
        connection.send(os.getpid())
        try:
            target, arguments = pickle.loads(work)
            module, _, name = target.partition(":")
            getattr(importlib.import_module(module), name)(connection, arguments, fds[1:])
            status = 0
        except BaseException:
            connection.send(Failure(traceback.format_exc()))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])


def _wait(pids: Sequence[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(_statuses.get(pid, 0) is None for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
