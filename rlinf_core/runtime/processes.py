"""The ``processes`` runtime: a process for every worker, joined by shared memory.

Starts, listens to and ends processes; ``remote.py`` has the driver's handles of them. Workers are
forked from a zygote that has imported what the first group needs; the switchboard, one more child
of it, keeps channels and leases. ``process.py`` is what runs in a worker, ``switchboard.py`` in the
switchboard. All ends with the driver, however it ends.
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
from typing import Any

from rlinf_core.errors import RuntimeFailure
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import ChannelSpec, Span, WorkerSpec
from rlinf_core.runtime.client import ProcessChannel, forget, use
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.limits import processors
from rlinf_core.runtime.link import Memory
from rlinf_core.runtime.process import Assignment
from rlinf_core.runtime.remote import Board, DriverClient, ProcessGroup, Remote
from rlinf_core.runtime.switchboard import Verb
from rlinf_core.runtime.timer import MOST_SPANS
from rlinf_core.runtime.worker import Place, check_name, places
from rlinf_core.runtime.zygote import Child, Zygote

_WORKER = "rlinf_core.runtime.process:serve"
_SWITCHBOARD = "rlinf_core.runtime.switchboard:serve"
_GRACE = 5.0  # seconds that workers get to close what they hold
_CAUSE = 1.0  # seconds to wait for the failure from which the one that was heard follows


class ProcessRuntime:
    """A process per worker; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        config: it has no options.
    """

    def __init__(self, config: Any = None) -> None:
        self.memory = Memory("driver")
        self.failure: RuntimeFailure | None = None
        self._follows = False  # whether the failure only follows from one that is yet to be heard
        self._zygote: Zygote | None = None
        self._board: Child | None = None
        self._client: DriverClient | None = None
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
        zygote, board = self._started(spec.target.partition(":")[0])
        workers = []
        for place in places(spec.name, processes, placement):
            variables = placement[place.rank].environment if placement else {}
            workers.append(self._fork(zygote, board, spec, place, dict(variables)))
        group = ProcessGroup(self, spec.name, workers)
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

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """End every worker, the switchboard and the zygote; may be called twice."""
        if self._closed:
            return
        self._closed = True
        workers = [worker for group in self._groups for worker in group.workers][::-1]
        for worker in workers:
            worker.end()
        with contextlib.suppress(OSError, RuntimeFailure):
            if self._board is not None:
                self._board.send((Verb.CANCEL,))
        self._leave()
        forget(self._own_client)
        deadline = time.monotonic() + _GRACE
        for child in [*(worker.child for worker in workers), self._board]:
            if child is not None:
                _end(child, deadline)
        if self._zygote is not None:
            self._zygote.close()
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
        for ready, _ in [] if self._closed else self._selector.select(timeout):
            ready.data()
            self._tell()

    def keep(self, spans: Sequence[Span]) -> None:
        """Take the spans of a call."""
        self._spans += spans

    def fail(self, child: Child, failure: RuntimeFailure, follows: bool = False) -> None:
        """Note a failure, which every wait raises, and listen to that child no more.

        The first one counts, but for one that only follows from another.
        """
        self._selector.unregister(child)
        if self.failure is None or self._follows:
            self.failure, self._follows = failure, follows

    def raise_failure(self) -> None:
        """Raise the failure that was noted, if there is one."""
        if self.failure is None:
            return
        deadline = time.monotonic() + _CAUSE
        while self._follows and (left := deadline - time.monotonic()) > 0:
            self.hear(left)
        self._follows = False
        raise self.failure from getattr(self.failure, "cause", None)

    def why(self) -> None:
        """Wait a moment for the failure because of which nobody answers, and raise it."""
        deadline = time.monotonic() + _CAUSE
        while self.failure is None and (left := deadline - time.monotonic()) > 0:
            self.hear(left)
        self.raise_failure()

    def attend(self, client: DriverClient) -> None:
        """Listen to everybody until there is an answer for the driver's own client."""
        self._selector.register(client, selectors.EVENT_READ, lambda: None)
        try:
            while not client.wait(0):
                self.raise_failure()
                self.hear(None)
        except BaseException:
            self._selector.unregister(client)
            self._leave()  # or the answer would be taken for that to the next question
            raise
        self._selector.unregister(client)

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

    def _started(self, *modules: str) -> tuple[Zygote, Child]:
        if self._closed:
            raise RuntimeFailure("the runtime is closed")
        if self._zygote is None or self._board is None:
            self._zygote = Zygote(["torch", "rlinf_core.runtime.process", *modules])
            self._board = self._zygote.fork(_SWITCHBOARD)
            use(self._own_client)
            self._selector.register(
                self._board, selectors.EVENT_READ, Board(self, self._board).hear
            )
        return self._zygote, self._board

    def _fork(
        self,
        zygote: Zygote,
        board: Child,
        spec: WorkerSpec,
        place: Place,
        environment: dict[str, str],
    ) -> Remote:
        name = f"{place.group}[{place.rank}]"
        order = len(self._groups)
        assignment = Assignment(name, order, spec, place, environment, _threads())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            board.send((Verb.JOIN, name), [theirs.fileno()])
            child = zygote.fork(_WORKER, assignment, [ours.fileno()])
        remote = Remote(self, assignment, child)
        self._selector.register(child, selectors.EVENT_READ, remote.hear)
        return remote

    def _own_client(self) -> DriverClient:
        """Return the driver's own client, made when it is first needed."""
        if self._client is None:
            _, board = self._started()
            ours, theirs = socket.socketpair()
            with theirs:
                board.send((Verb.JOIN, "driver"), [theirs.fileno()])
            self._client = DriverClient(self, Connection(ours))
        return self._client

    def _leave(self) -> None:
        if self._client is not None:
            self._client.leave()
            self._client = None


def _end(child: Child, deadline: float) -> None:
    """Wait for a child that was asked to end, and kill it where it does not."""
    with contextlib.suppress(RuntimeFailure):
        if child.wait(0.0):
            _ = child.pid  # without it nobody knows whom to kill; but its zygote does
    child.end(max(deadline - time.monotonic(), 0.1))


def _threads() -> int:
    """Return how many threads torch would use in this process."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else processors()
