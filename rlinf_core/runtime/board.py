"""What the driver holds of the switchboard: its process, and the driver's own end of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_core.errors import RuntimeFailure, WorkerDied
from rlinf_core.runtime.baton import Cancelled
from rlinf_core.runtime.client import Client
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.verbs import Verb, Waiting
from rlinf_core.runtime.zygote import Child

if TYPE_CHECKING:
    from rlinf_core.runtime.processes import ProcessRuntime


class Board:
    """The driver's handle of the switchboard, which says nothing unless it fails or is asked.

    Attributes:
        failure: why it is no more; None while it lives.
        clients: what everybody was at when it was last asked.
        answered: when it last answered, in seconds of the monotonic clock.
        resets: how often it has emptied its channels.
    """

    def __init__(self, runtime: ProcessRuntime, child: Child) -> None:
        self._runtime, self.child = runtime, child
        self.failure: RuntimeFailure | None = None
        self.clients: Mapping[str, Waiting] = {}
        self.answered, self.resets = time.monotonic(), 0

    def tell(self, verb: Verb, *content: Any, fds: Sequence[int] = ()) -> None:
        """Send a message."""
        self.child.send((verb, *content), fds)

    def hear(self) -> None:
        """Take the message that has come."""
        try:
            if not self.child.started:
                _ = self.child.pid
                return
            verb, *content = self.child.receive()
        except RuntimeFailure as error:
            # One that never started is not to blame: what keeps it from that keeps workers, too.
            self.fail(f"is gone: {error}", follows=not self.child.started)
            return
        self.answered = time.monotonic()
        if verb is Verb.WAITING:
            [self.clients] = content
        else:
            self.resets += 1

    def fail(
        self, how: str, follows: bool = False, kind: type[RuntimeFailure] = WorkerDied
    ) -> None:
        """Take note that it is no more."""
        what = "the switchboard, the process that keeps channels and leases,"
        self.failure = kind(f"{what} {how}")
        self._runtime.fail(self.child, self.failure, follows)


class DriverClient(Client):
    """The driver's own end of the switchboard: it listens to the workers while it waits."""

    def __init__(self, runtime: ProcessRuntime, connection: Connection) -> None:
        super().__init__("driver", connection, runtime.memory)
        self._runtime = runtime

    def put(self, *arguments: Any) -> None:
        """Add an item, and hear what became of it: the driver may never ask anything more."""
        with self._explained():
            super().put(*arguments)
            self.settle()

    def _ask(self, message: object, timeout: float | None = None) -> Sequence[Any]:
        with self._explained():
            return super()._ask(message, timeout)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise why nobody answers, and not only that."""
        try:
            yield
        except Cancelled:
            self._runtime.why()
            raise RuntimeFailure("the runtime was closed meanwhile") from None

    def _attend(self, deadline: float | None) -> bool:
        return self._runtime.attend(self, deadline)
