"""The driver's inbox: whatever happens elsewhere is told here; it waits for nothing else.

Ray answers in threads of its own; they leave here what is to be done about an answer, and the
driver's thread does it when it listens. So all that a runtime knows changes in one thread, a wait
costs nothing, and a signal's handler can end it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import ray


class Inbox:
    """What the driver has yet to hear."""

    def __init__(self) -> None:
        # Python's one queue whose put may come from a signal's handler, whoever else is at it.
        self._acts: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def watch(self, ref: ray.ObjectRef, hear: Callable[[Future[Any]], object]) -> None:
        """Have ``hear`` called, by whoever listens, with the future of ``ref`` when it is done."""
        ref.future().add_done_callback(lambda done: self.post(lambda: hear(done)))

    def post(self, act: Callable[[], None]) -> None:
        """Leave something to be done; from any thread, or from a signal's handler."""
        self._acts.put(act)
        for event, loop in list(self._listeners.items()):
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    def interrupt(self) -> None:
        """Make whoever listens raise ``KeyboardInterrupt``."""
        self.post(_interrupted)

    def hear(self, timeout: float | None) -> None:
        """Do what is to be done, waiting up to ``timeout`` seconds until there is anything.

        Raises:
            KeyboardInterrupt: :meth:`interrupt` was called.
        """
        with contextlib.suppress(Empty):
            if timeout is None or timeout > 0:
                self._acts.get(timeout=timeout)()
            while True:
                self._acts.get_nowait()()

    @contextlib.contextmanager
    def news(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
        """Give an event that is set, within the block, whenever there is something to hear."""
        event = asyncio.Event()
        self._listeners[event] = loop
        try:
            yield event
        finally:
            del self._listeners[event]


def _interrupted() -> None:
    raise KeyboardInterrupt
