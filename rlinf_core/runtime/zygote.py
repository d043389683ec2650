"""Zygote: a process that imports once and forks children in milliseconds.

Here is what the driver holds (:class:`Zygote`, :class:`Child`); what runs in the zygote and in its
children stands in ``forking.py``. What a child does is its target's business.

Why not fork the driver: it has threads, a device and a user's objects. Why not start each process
afresh: importing a simulator takes seconds. The zygote has one thread and no renderer. Nothing
outlives the driver: zygote and children each end when their own socket closes, and a zygote that
is stopped by a signal at that moment is made to go on (``spawn.py``).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlinf_core.errors import RuntimeFailure
from rlinf_core.runtime.connection import Connection, Failure
from rlinf_core.runtime.forking import DRIVERS_SIGNALS
from rlinf_core.runtime.spawn import spawn

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
_LARGEST = 32_768  # a longer variable travels by socket: Linux refuses to exec with one > 128 KiB
_GRACE = 2.0  # seconds that children get to end by themselves, and a zygote to answer
_PATIENCE = 30  # seconds for a zygote to read what it is told


class ChildGone(RuntimeFailure):
    """A child ended without a last word; ``how`` says what is known, without what it printed."""

    def __init__(self, how: str, tail: str) -> None:
        self.how = how
        super().__init__(how + (f"\nend of its standard error:\n{tail}" if tail else ""))

    def __reduce__(self) -> Any:
        return RuntimeFailure, self.args


class Child(Connection):
    """The driver's end of a forked process; made by :meth:`Zygote.fork`.

    ``send``, ``receive`` and ``pid`` raise :class:`RuntimeFailure` where the child raised (with its
    traceback), could not start, or died (with its exit status and the end of its standard error).
    """

    def __init__(self, sock: socket.socket, zygote: Zygote, target: str) -> None:
        super().__init__(sock)
        self._zygote, self._target = zygote, target
        self._pid = 0

    @property
    def started(self) -> bool:
        """Whether its first message has been heard."""
        return bool(self._pid)

    @property
    def pid(self) -> int:
        """Process id, which is the child's first message; waits until it runs."""
        if not self._pid:
            self._pid = int(self._next())
        return self._pid

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message to the target."""
        try:
            super().send(message, fds)
        except OSError:
            self.receive()  # raises its last words, if it left any
            raise RuntimeFailure(f"{self._target} has ended") from None

    def receive(self) -> Any:
        """Wait for the target's next message."""
        _ = self.pid
        return self._next()

    def _next(self) -> Any:
        try:
            message = super().receive()
        except EOFError:
            raise self._obituary() from None
        if isinstance(message, Failure):
            raise RuntimeFailure(f"{self._target} failed:\n{message.traceback.rstrip()}")
        return message

    def exit_status(self, timeout: float = 0.0) -> int | None:
        """Wait for the exit status (``-9`` for signal 9); None: it still runs or never started."""
        return self._zygote.exit_status(self._pid, timeout)

    def end(self, timeout: float = _GRACE) -> None:
        """Close, wait up to ``timeout`` seconds, and kill a child that is still there."""
        self.close()
        if self._pid and self.exit_status(timeout) is None:
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to a child that has said who it is."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _obituary(self) -> ChildGone:
        status = self.exit_status(_GRACE) if self._pid else None
        time.sleep(0.05)  # what it wrote last may still be on its way
        who = f"process {self._pid} of {self._target}" if self._pid else self._target
        if status is None:
            how = f"went away or never started; {self._zygote.condition()}"
        else:
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left {status}"
        return ChildGone(f"{who} {how}", self._zygote.stderr_tail().rstrip())


class Zygote:
    """Starts the process and returns at once; imports go on while the driver does other things.

    Args:
        imports: modules to import, once, before the first fork.
        environment: variables on top of the driver's own and of one thread per process.
    """

    def __init__(
        self, imports: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        wanted = {**os.environ, **_ONE_THREAD, **(environment or {})}
        large = {k: v for k, v in wanted.items() if len(os.fsencode(v)) > _LARGEST}
        ours, theirs = socket.socketpair()
        boot = (
            "import signal, sys; "
            + "".join(f"signal.signal({int(n)}, signal.SIG_IGN); " for n in DRIVERS_SIGNALS)
            + f"sys.path[:] = {sys.path!r}; "
            "from rlinf_core.runtime.forking import serve; "
            f"serve({theirs.fileno()}, {os.getpid()})"
        )
        with theirs:
            self._process = spawn(
                [sys.executable, "-u", "-c", boot],  # unbuffered: the last words of who is killed
                env={k: v for k, v in wanted.items() if k not in large},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # the driver's own standard output is for results
                stderr=subprocess.STDOUT,
            )
        # One that is stopped reads nothing; whoever tells it something must not wait for ever.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE, 0))
        self._control, self._lock = Connection(ours), threading.Lock()
        self._deaf = False  # whether the last question had no answer
        self._asked: float | None = None  # when it was asked for a sign of life
        self._tail: deque[bytes] = deque(maxlen=40)
        pump = threading.Thread(target=_pump, args=(self._process.stdout, self._tail), daemon=True)
        pump.start()
        self._ends: weakref.WeakSet[Connection] = weakref.WeakSet([self._control])
        self.close = weakref.finalize(self, _end, self._process, self._ends, pump)
        """End the zygote and all its children; may be called twice."""
        with contextlib.suppress(OSError):  # an early death shows at the first fork
            self._control.send((large, tuple(imports)))

    def fork(self, target: str, arguments: object = None, fds: Sequence[int] = ()) -> Child:
        """Start ``target(connection, arguments, fds)`` in a new process, without waiting for it.

        Args:
            target: ``"pkg.module:function"``. What it raises, and that an import failed, shows at
                the child's next message.
            arguments: anything picklable, unpickled in the child.
            fds: open files to hand over, such as shared memory; the caller keeps its own.

        Raises:
            RuntimeFailure: the zygote has ended.
        """
        ours, theirs = socket.socketpair()
        work = pickle.dumps((target, arguments), pickle.HIGHEST_PROTOCOL)
        with theirs, self._lock:
            try:
                self._control.send(("fork", work, 0.0), [theirs.fileno(), *fds])
            except OSError:
                ours.close()
                why = f"{self.condition()}\n{self.stderr_tail()}"
                raise RuntimeFailure(f"cannot start {target}; {why}") from None
        child = Child(ours, self, target)
        self._ends.add(child)
        return child

    def exit_status(self, pid: int, timeout: float = 0.0) -> int | None:
        """Return a child's exit status within ``timeout`` seconds; None: it runs, or who knows."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            question = (pid, time.monotonic())
            self._control.send(("status", question, timeout))
            deadline = question[1] + timeout + (_GRACE / 20 if self._deaf else _GRACE)
            self._deaf = True
            while self._control.wait(deadline - time.monotonic()):
                about, status = self._control.receive()
                self._asked = None
                if about == question:  # else it answers, late, what was asked before
                    self._deaf = False
                    return status  # type: ignore[no-any-return]
        return None

    def silence(self) -> float:
        """Ask for a sign of life; return for how many seconds there has been none.

        Ask only a zygote that has finished its imports: until then it does not listen.
        """
        with self._lock, contextlib.suppress(OSError, EOFError):
            while self._control.wait(0.0):
                self._control.receive()
                self._asked = None
            if self._asked is not None:
                return time.monotonic() - self._asked
            self._asked = time.monotonic()
            self._control.send(("status", (0, self._asked), 0.0))
        return 0.0

    def kill(self) -> None:
        """Kill the zygote, and with it all its children."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        """Whether the zygote itself runs."""
        return self._process.poll() is None

    @property
    def deaf(self) -> bool:
        """Whether it had no answer to the last question; it may be stopped."""
        return self._deaf

    def condition(self) -> str:
        """Say the same in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)  # its socket closes a moment before it ends
        if self.alive:
            return "its zygote does not answer" if self._deaf else "its zygote runs"
        return f"its zygote ended with status {self._process.returncode}"

    def stderr_tail(self) -> str:
        """Return the last lines that the zygote and its children wrote."""
        return b"".join(self._tail).decode(errors="replace")


def end_children(children: Iterable[Child], seconds: float) -> None:
    """Wait for children that were asked to end, and kill those that do not."""
    deadline = time.monotonic() + seconds
    for child in [child for child in children if child.fileno() >= 0]:  # others have been ended
        with contextlib.suppress(RuntimeFailure):
            if child.wait(0.0):
                _ = child.pid  # without it nobody knows whom to kill; but its zygote does
        child.end(max(deadline - time.monotonic(), 0.1))


def _pump(pipe: Any, tail: deque[bytes]) -> None:
    """Pass on what children print, and keep the last lines for the error of one that dies."""
    with pipe:
        for line in pipe:
            tail.append(line)
            with contextlib.suppress(Exception):  # a closed stderr must not stop the children
                sys.stderr.write(line.decode(errors="replace"))


def _end(
    process: subprocess.Popen[bytes], ends: Iterable[Connection], pump: threading.Thread
) -> None:
    for connection in list(ends):
        connection.close()
    try:
        process.wait(2 * _GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    pump.join(1.0)
