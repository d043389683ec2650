"""Ctrl-C: the first asks for a stop after a safe checkpoint, the second for one right now.

The second makes the driver's wait raise ``KeyboardInterrupt``, so everything is still closed in
order; should that not end, a third is the system's own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether somebody asked the run to stop, and how urgently.

    ``promise`` says what the first signal leads to at this time.

    Args:
        now: called at the second signal.
        report: told that the first signal was understood.
    """

    def __init__(self, now: Callable[[], None], report: Callable[[str], None]) -> None:
        self._asked = False
        self.promise = "stopping after this iteration's checkpoint"
        self._now, self._report = now, report

    def wanted(self) -> bool:
        """Return whether the run should stop."""
        return self._asked

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._asked:
            signal.signal(number, signal.SIG_DFL)
            self._now()
            self._report("stopping now; what came after the last checkpoint is lost")
            return
        self._asked = True
        self._report(f"{self.promise}; once more to stop now")


@contextmanager
def stop_on_signal(now: Callable[[], None], report: Callable[[str], None]) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a :class:`StopRequest` within the block."""
    request = StopRequest(now, report)
    with _handled(request):
        yield request


@contextmanager
def interrupt_on_signal(now: Callable[[], None]) -> Iterator[None]:
    """Call ``now`` at the first such signal within the block; a second ends the process."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        now()

    with _handled(handle):
        yield


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
