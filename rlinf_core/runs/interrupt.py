"""Ctrl-C: the first asks for a stop after a safe checkpoint, the second for one right now.

The second makes the driver's wait raise ``KeyboardInterrupt``, so everything is still closed in
order, which no signal disturbs; should that not end, a third is the system's own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether somebody asked the run to stop, and how urgently.

    Args:
        report: told that a signal was understood.
        patient: whether the first signal only asks; else it is as urgent as the second.

    Attributes:
        promise: says what the first signal leads to at this time.
        now: called at an urgent one; the run sets it when there is something to interrupt.
    """

    def __init__(self, report: Callable[[str], None], patient: bool = True) -> None:
        self._signals = 0 if patient else 1
        self.promise = "stopping after this iteration's checkpoint"
        self.now: Callable[[], None] = lambda: None
        self._report, self._patient = report, patient
        self._ending = False

    def wanted(self) -> bool:
        """Return whether the run should stop."""
        return self._signals > (not self._patient)

    def ends(self) -> None:
        """Take note that all is being closed, which takes seconds and is not to be disturbed."""
        self._ending = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._signals += 1
        if self._signals > 2:
            signal.signal(number, signal.SIG_DFL)
        if self._ending:
            self._report("closing; a few seconds more")
        elif self._signals == 1:
            self._report(f"{self.promise}; once more to stop now")
        else:
            self.now()
            if self._patient:
                self._report("stopping now; what came after the last checkpoint is lost")


@contextmanager
def stop_on_signal(report: Callable[[str], None]) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a :class:`StopRequest` within the block."""
    request = StopRequest(report)
    with _handled(request):
        yield request


@contextmanager
def interrupt_on_signal() -> Iterator[StopRequest]:
    """The same, where the first such signal is urgent already."""
    request = StopRequest(lambda text: None, patient=False)
    with _handled(request):
        yield request


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; a caller elsewhere stops otherwise
        return
    # a person, a batch system, a terminal that is gone
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
