"""Baton: threads of which exactly one runs at a time, in an order that never varies.

Each participant is a :class:`Strand`. A strand runs until it has to wait for a condition; then it
hands the baton to the next strand, in the order of joining, whose own condition holds. As only the
holder of the baton changes anything, conditions need no locks, a run is repeatable step by step,
and a debugger stops everything. Where no condition holds, nobody can ever go on: that is reported
as a deadlock with who waits for what, instead of hanging.

A thread cannot be killed. One that keeps the baton for too long is *abandoned*: the driver takes
the baton, and the thread ends as soon as it asks for anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rlinf_core.errors import Deadlock


class Cancelled(BaseException):
    """Raised inside a waiting worker when its runtime closes."""


class Dropped(Cancelled):
    """Raised inside a waiting worker whose call is ended, and which goes on with the next one."""


_LOOK = 0.5  # seconds between two looks at whether the baton is kept for too long

_thread = threading.local()
"""The baton that each worker's thread belongs to."""


def raise_if_cancelled() -> None:
    """Raise :class:`Cancelled` where the calling worker, or its driver, is to stop right now.

    For a wait that no baton sees, such as one for another process. Does nothing in other threads.
    """
    baton: Baton | None = getattr(_thread, "baton", None)
    if baton is not None and (baton.strand.cancelled or baton.driver.cancelled):
        raise Cancelled


class Strand:
    """One participant: what it waits for, and the lock on which its thread sleeps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: Callable[[], bool] | None = None
        self.what = ""
        self.turn = threading.Lock()  # a hand-over costs half of what an Event's would
        self.turn.acquire()
        self.since = 0.0  # when it last got the baton, in seconds of the monotonic clock
        self.cancelled: type[BaseException] | None = None
        self.abandoned = False


class Baton:
    """Owned by one runtime. The thread that makes it is the first strand, and holds it.

    Args:
        too_long: asked now and then while the driver waits whether ``holder`` is to be abandoned.
    """

    def __init__(self, too_long: Callable[[], bool] = lambda: False) -> None:
        self.driver = self.holder = Strand("driver")
        self._too_long = too_long
        self._strands: list[Strand] = [self.driver]
        self._handing_over = threading.Lock()
        self._here = threading.local()
        self._here.strand = self.driver

    @property
    def strand(self) -> Strand:
        """The strand of the calling thread."""
        strand: Strand = self._here.strand
        return strand

    def start(self, name: str, body: Callable[[], None]) -> tuple[Strand, threading.Thread]:
        """Add a strand that will run ``body`` when the baton first comes to it."""
        strand = Strand(name)
        strand.ready, strand.what = (lambda: True), "its start"
        self._strands.append(strand)

        def run() -> None:
            strand.turn.acquire()
            strand.ready = None
            self._here.strand, _thread.baton = strand, self
            try:
                if strand.cancelled is None:
                    body()
            finally:
                with suppress(Cancelled):
                    self._leave(strand)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return strand, thread

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Go on when ``ready()`` is true, letting others run meanwhile.

        Raises:
            Deadlock: it is false, and so is every other strand's.
            Cancelled: the runtime closes (or what :meth:`cancel` said).
        """
        me = self.strand
        if me.cancelled is not None:
            raise me.cancelled
        if ready():
            return
        me.ready, me.what = ready, what
        heir = self._next(me)
        if heir is None:
            waiting = "; ".join(f"{s.name} waits for {s.what}" for s in self._strands)
            me.ready = None
            raise Deadlock(f"nothing can go on: {waiting}")
        if heir is not me:
            self._hand_over(me, heir)
            if me is self.driver:
                self._watch()
            else:
                me.turn.acquire()
        me.ready = None
        if me.cancelled is not None:
            raise me.cancelled
        if me is self.driver and not ready():  # it took the baton from whoever had it
            self.wait(ready, what)

    def cancel(self, strand: Strand, how: type[BaseException] = Cancelled) -> None:
        """Make a strand's current or next wait raise ``how`` when it next gets the baton."""
        strand.cancelled = how
        if strand.ready is not None:
            strand.ready = lambda: True

    def end(self, strand: Strand) -> None:
        """Cancel a strand and wait until it has ended."""
        self.cancel(strand)
        self.wait(lambda: strand not in self._strands, f"{strand.name} to end")

    def _next(self, me: Strand) -> Strand | None:
        return self._ready([*self._after(me), me])

    def _after(self, me: Strand) -> list[Strand]:
        """Return all others, in the order in which they come after this one."""
        strands = list(self._strands)
        if me not in strands:  # abandoned
            raise Cancelled
        start = strands.index(me)
        return strands[start + 1 :] + strands[:start]

    @staticmethod
    def _ready(order: list[Strand]) -> Strand | None:
        return next((s for s in order if s.ready is not None and s.ready()), None)

    def _hand_over(self, me: Strand, heir: Strand) -> None:
        with self._handing_over:
            if me.abandoned:
                raise Cancelled
            self.holder, heir.since = heir, time.monotonic()
            heir.turn.release()

    def _watch(self) -> None:
        """Sleep until the driver gets the baton, or takes it."""
        while not self.driver.turn.acquire(timeout=_LOOK):
            if self._too_long():
                with self._handing_over:
                    if self.holder is not self.driver:
                        lost, self.holder = self.holder, self.driver
                        lost.abandoned, lost.cancelled = True, Cancelled
                        self._strands.remove(lost)
                        return

    def _leave(self, me: Strand) -> None:
        if me.abandoned:
            return
        others = self._after(me)
        self._strands.remove(me)
        heir = self._ready(others)
        # The driver waits for each strand that it ends, so there is always an heir but at exit.
        if heir is not None:
            self._hand_over(me, heir)
