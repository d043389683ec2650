"""Watch: finds what hangs: a worker that misses a deadline, a switchboard or zygote that is silent.

The driver looks twice a second while it waits. Where several workers are late because they wait for
one another, the one to blame is the one that waits for nobody, as the switchboard tells. Whoever is
to blame writes where it is, if it still can, and is killed: ``SIGKILL`` also ends what is stopped.
Only the monotonic clock is read, and time in which the driver itself stood still does not count.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from rlinf_core.errors import DeadlineExceeded
from rlinf_core.runtime.logs import STACKS
from rlinf_core.runtime.remote import Remote

if TYPE_CHECKING:
    from rlinf_core.runtime.processes import ProcessRuntime

LOOK = 0.5  # seconds between two looks
_PULSE = 5.0  # seconds between two questions whether switchboard and zygote are there


class Watch:
    """Looks after the processes of one runtime."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self._runtime = runtime
        self._next, self._pulse = 0.0, 0.0
        self._asked: float | None = None  # when the switchboard was asked what it has not answered
        self._late_since: float | None = None

    def look(self) -> None:
        """Blame whoever hangs, if anybody does and it is time to look."""
        now, board = time.monotonic(), self._runtime.board
        if now < self._next or board is None or self._runtime.anything_to_hear():
            return
        self._next = now + LOOK
        if self._asked is not None and board.answered >= self._asked:
            self._asked = None
        self._look_for_late(now)
        if board.child.started and board.failure is None:
            self._look_at_board(now)
            if now > self._pulse:
                self._pulse = now + _PULSE
                self._look_at_zygote()

    def stood_still(self, seconds: float) -> None:
        """Take note that the driver was stopped, or its machine, and nobody could be in time."""
        for remote in self._runtime.workers():
            remote.since += seconds
        if self._asked is not None:
            self._asked += seconds

    # --- switchboard and zygote ------------------------------------------------------------------

    def _look_at_board(self, now: float) -> None:
        board, patience = self._runtime.board, self._runtime.patience
        assert board is not None
        if self._asked is None:
            if self._late_since is not None or now - board.answered > _PULSE:
                self._ask(now)
        elif now - self._asked > patience:
            board.child.signal(signal.SIGKILL)
            board.fail(f"did not answer for {patience:g} s and was killed", kind=DeadlineExceeded)

    def _ask(self, now: float) -> None:
        self._asked = now
        self._runtime.ask_who_waits()

    def _look_at_zygote(self) -> None:
        zygote, patience = self._runtime.zygote, self._runtime.patience
        if zygote is not None and zygote.silence() > patience:
            zygote.kill()
            what = "the zygote, the process that starts workers,"
            self._runtime.give_up(
                DeadlineExceeded(f"{what} did not answer for {patience:g} s and was killed")
            )

    # --- workers ---------------------------------------------------------------------------------

    def _look_for_late(self, now: float) -> None:
        busy = [remote for remote in self._runtime.workers() if remote.busy]
        late = [remote for remote in busy if now - remote.since > remote.limit]
        if not late:
            self._late_since = None
            return
        if self._late_since is None:
            self._late_since = now
        board = self._runtime.board
        assert board is not None
        if any(not remote.child.started for remote in late):
            self._blame_start(next(remote for remote in late if not remote.child.started))
        elif board.answered > self._late_since:  # it was asked since
            self._late_since = None
            self._blame(late, busy, now)

    def _blame_start(self, remote: Remote) -> None:
        """Fail a worker whose process has not begun."""
        zygote, limit = self._runtime.zygote, remote.limit
        assert zygote is not None
        zygote.kill()
        remote.fail(
            DeadlineExceeded(
                f"it took more than {limit:g} s, its deadline, and its process has not begun: the "
                "zygote that forks it was stopped, or still at its imports; both were killed"
            )
        )

    def _blame(self, late: list[Remote], busy: list[Remote], now: float) -> None:
        clients = self._runtime.board.clients if self._runtime.board is not None else {}
        waits = {name: client.what for name, client in clients.items() if client.what}

        def silent(remote: Remote) -> float:
            spoke = clients[remote.name].since if remote.name in clients else 0.0
            return now - max(spoke, remote.since)

        first = max(late, key=lambda remote: now - remote.since - remote.limit)
        moving = [r for r in late if r.name not in waits] or [
            r for r in busy if r.name not in waits
        ]
        culprit = max(moving or [first], key=silent)
        text = f"it took more than {culprit.limit:g} s, its deadline"
        if culprit not in late:
            text = (
                f"{first.name}.{first.method} took more than {first.limit:g} s, its deadline, "
                f"waiting for {waits[first.name]}; this one waits for nobody, and was at it for "
                f"{silent(culprit):.0f} s"
            )
        elif culprit.name in waits:
            others = sorted(f"{name} waits for {what}" for name, what in waits.items())
            text += ", and waits as everybody does: " + "; ".join(others)
        elif culprit.made:
            text += f", and was at it for {silent(culprit):.0f} s without waiting for anybody"
        self._end(culprit, DeadlineExceeded(f"{text}; its process was killed"))

    def _end(self, remote: Remote, error: DeadlineExceeded) -> None:
        remote.child.signal(STACKS)
        remote.log.wait_for_more(1.0)
        remote.child.signal(signal.SIGKILL)
        remote.fail(error)
