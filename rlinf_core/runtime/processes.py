"""The ``processes`` runtime: a process for every worker, joined by shared memory.

Starts, listens to and ends processes; ``remote.py`` has the driver's handles of them, ``watch.py``
finds those that hang, ``recovery.py`` makes failed ones anew. Workers are forked from a zygote that
has imported what the first group needs; the switchboard, one more child of it, keeps channels and
leases. ``process.py`` is what runs in a worker, ``switchboard.py`` in the switchboard. All ends
with the driver, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlinf_core.errors import RuntimeFailure, WorkerFailed
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec
from rlinf_core.runtime.board import Board, DriverClient
from rlinf_core.runtime.client import ProcessChannel, forget, use
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.limits import processors
from rlinf_core.runtime.link import Memory
from rlinf_core.runtime.logs import WorkerLog
from rlinf_core.runtime.process import Assignment
from rlinf_core.runtime.recovery import recover
from rlinf_core.runtime.remote import ProcessGroup, Remote
from rlinf_core.runtime.timer import MOST_SPANS
from rlinf_core.runtime.verbs import Verb
from rlinf_core.runtime.watch import LOOK, Watch
from rlinf_core.runtime.worker import check_name, places
from rlinf_core.runtime.zygote import Child, Zygote, end_children

_WORKER = "rlinf_core.runtime.process:serve"
_SWITCHBOARD = "rlinf_core.runtime.switchboard:serve"
_GRACE = 5.0  # seconds that workers get to close what they hold
_PATIENCE = 30.0  # seconds for an answer that takes no computing
_STOOD_STILL = 2.0  # seconds that a wait takes too long where this process was stopped meanwhile
_CAUSE = 1.0  # seconds to wait for the failure from which the one that was heard follows


class ProcessRuntime:
    """A process per worker; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        config: it has no options.

    Attributes:
        failure: the first that was heard of and has not been recovered from.
        era: how often it recovered from failures; a call belongs to the one it was made in.
    """

    def __init__(self, config: Any = None) -> None:
        self.memory = Memory("driver")
        self.failure: RuntimeFailure | None = None
        self.era = 0
        self.zygote: Zygote | None = None
        self.board: Board | None = None
        self._watch = Watch(self)
        self._follows = False  # whether the failure only follows from one that is yet to be heard
        self._client: DriverClient | None = None
        self._forked = 0
        self._groups: list[ProcessGroup] = []
        self._channels: dict[str, ProcessChannel] = {}
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._selector = selectors.DefaultSelector()
        self._wake, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._ring)
        self._news: set[asyncio.Event] = set()
        self._closed = False

    # --- the protocol ----------------------------------------------------------------------------

    def reserve(self, places: Iterable[GroupPlace]) -> None:
        """Do nothing: this machine's devices are there for whoever uses them."""

    def launch(
        self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()
    ) -> ProcessGroup:
        """Fork the workers of a group, without waiting until they run."""
        check_name(spec.name, self._groups)
        self._start(spec.target.partition(":")[0])
        workers = []
        for place in places(spec.name, processes, placement):
            variables = placement[place.rank].environment if placement else {}
            name, order = f"{place.group}[{place.rank}]", len(self._groups)
            assignment = Assignment(name, "", order, spec, place, dict(variables), _threads())
            workers.append(self.fork(assignment))
        group = ProcessGroup(self, spec, workers)
        self._groups.append(group)
        return group

    def channel(self, name: str, spec: ChannelSpec | None = None) -> ProcessChannel:
        """Return the channel of that name, making it where there is none."""
        if name not in self._channels:
            spec = spec or ChannelSpec()
            if spec.policy is not None:
                resolve_ref(spec.policy)  # a policy that is not there is told here
            self._channels[name] = ProcessChannel(name, spec, self._own_client)
        return self._channels[name]

    def spans(self) -> list[Span]:
        """Return the spans of calls that have ended since the last time, and the driver's own."""
        taken = list(self._spans)
        self._spans.clear()
        return taken if self._client is None else taken + self._client.spans()

    def recover(self) -> list[tuple[str, int]]:
        """Make failed workers anew; see ``recovery.py``."""
        return recover(self, self._groups)

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """End every worker, the switchboard and the zygote; may be called twice."""
        if self._closed:
            return
        self._closed = True
        workers = self.workers()[::-1]
        for worker in workers:
            worker.end()
        with contextlib.suppress(OSError, RuntimeFailure):
            if self.board is not None:
                self.board.tell(Verb.CANCEL)
        self.leave()
        forget(self._own_client)
        boards = [] if self.board is None else [self.board.child]
        end_children([*(worker.child for worker in workers), *boards], _GRACE)
        for worker in workers:
            worker.log.tail(0.5)  # so that what it said last is passed on before this returns
        if self.zygote is not None:
            self.zygote.close()
        self._selector.close()
        self._wake.close()
        self._bell.close()
        self.memory.close()
        self.failure = self.failure or RuntimeFailure("the runtime is closed")

    # --- for futures and handles -----------------------------------------------------------------

    def hear(self, timeout: float | None) -> None:
        """Take the messages that have come, waiting for the first up to ``timeout`` seconds.

        Raises:
            KeyboardInterrupt: :meth:`interrupt` was called.
        """
        if self._closed:
            return
        wanted = LOOK if timeout is None else min(timeout, LOOK)
        began = time.monotonic()
        for ready, _ in self._selector.select(wanted):
            ready.data()
            self._tell()
        if (more := time.monotonic() - began - wanted) > _STOOD_STILL:
            self._watch.stood_still(more)
        self._watch.look()

    def anything_to_hear(self) -> bool:
        """Return whether something has come that has yet to be heard."""
        return bool(self._selector.select(0))

    @property
    def patience(self) -> float:
        """Seconds in which the switchboard, the zygote and an idle worker have to answer."""
        return min([_PATIENCE, *(group.spec.deadlines.call for group in self._groups)])

    def workers(self) -> list[Remote]:
        """Return every worker, in the order of launching."""
        return [worker for group in self._groups for worker in group.workers]

    def keep(self, spans: Sequence[Span]) -> None:
        """Take the spans of a call."""
        self._spans += spans

    def fail(self, child: Child, failure: RuntimeFailure, follows: bool = False) -> None:
        """Note a failure, which every wait raises, and listen to that child no more."""
        self._selector.unregister(child)
        self.give_up(failure, follows)

    def give_up(self, failure: RuntimeFailure, follows: bool = False) -> None:
        """Note a failure. The first one counts, but for one that only follows from another."""
        if self.failure is None or self._follows:
            self.failure, self._follows = failure, follows

    def go_on(self) -> None:
        """Forget the failure; what was called before is of no account any more."""
        self.failure, self._follows = None, False
        self.era += 1

    def raise_failure(self) -> None:
        """Raise the failure that was noted, if there is one."""
        if self.failure is None:
            return
        deadline = time.monotonic() + _CAUSE
        while self._follows and (left := deadline - time.monotonic()) > 0:
            self.hear(left)
        self._follows = False
        cause = self.failure.cause if isinstance(self.failure, WorkerFailed) else None
        raise self.failure from cause

    def why(self) -> None:
        """Wait a moment for the failure because of which nobody answers, and raise it."""
        deadline = time.monotonic() + _CAUSE
        while self.failure is None and (left := deadline - time.monotonic()) > 0:
            self.hear(left)
        self.raise_failure()

    def attend(self, client: DriverClient, deadline: float | None) -> bool:
        """Listen to everybody until there is an answer for the driver's own client.

        Returns whether there is one by the deadline, in seconds of the monotonic clock.
        """
        self._selector.register(client, selectors.EVENT_READ, lambda: None)
        left = None
        try:
            while not client.wait(0):
                self.raise_failure()
                if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                    break
                self.hear(left)
        except BaseException:
            self._selector.unregister(client)
            self.leave()  # or the answer would be taken for that to the next question
            raise
        self._selector.unregister(client)
        return client.wait(0)

    @contextlib.contextmanager
    def news(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
        """Give an event that is set, within the block, whenever something was or can be heard."""
        event = asyncio.Event()
        self._news.add(event)
        loop.add_reader(self._selector.fileno(), self._tell)
        try:
            yield event
        finally:
            self._news.remove(event)
            if not self._news:
                loop.remove_reader(self._selector.fileno())

    # --- within ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Wake whoever awaits a future: what one has heard may be another's."""
        for event in self._news:
            event.set()

    def _ring(self) -> None:
        self._wake.recv(64)
        raise KeyboardInterrupt

    def _start(self, *modules: str) -> None:
        """Start the zygote and the switchboard, where that has not been done."""
        if self._closed:
            raise RuntimeFailure("the runtime is closed")
        if self.board is None:
            self.zygote = Zygote(["torch", "rlinf_core.runtime.process", *modules])
            self.board = Board(self, self.zygote.fork(_SWITCHBOARD))
            use(self._own_client)
            self._selector.register(self.board.child, selectors.EVENT_READ, self.board.hear)

    def fork(self, assignment: Assignment) -> Remote:
        """Start the process of a worker."""
        assert self.zygote is not None
        self._forked += 1
        assignment = replace(assignment, owner=f"{assignment.name} {self._forked}")
        log = WorkerLog(assignment.name)
        try:
            link = self._join(assignment.name)
            with link:
                child = self.zygote.fork(_WORKER, assignment, [link.fileno(), log.fd])
        finally:
            log.handed_over()
        remote = Remote(self, assignment, child, log)
        self._selector.register(child, selectors.EVENT_READ, remote.hear)
        return remote

    def leave(self) -> None:
        """Close the driver's own client; a new one is made when it is needed."""
        if self._client is not None:
            self._client.leave()
            self._client = None

    def ask_who_waits(self) -> None:
        """Ask the switchboard who waits for what."""
        with contextlib.suppress(RuntimeFailure):  # it is gone, which shows at its own socket
            if self.board is not None:
                self.board.tell(Verb.WAITING)

    def _join(self, name: str) -> socket.socket:
        """Return a client's end of a new connection to the switchboard."""
        assert self.board is not None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.board.tell(Verb.JOIN, name, fds=[theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return ours

    def _own_client(self) -> DriverClient:
        """Return the driver's own client, made when it is first needed."""
        if self._client is None:
            self._start()
            self._client = DriverClient(self, Connection(self._join("driver")))
        return self._client


def _threads() -> int:
    """Return how many threads torch would use in this process."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else processors()
