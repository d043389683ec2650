"""What runs in a worker's process: make the worker, do as the driver calls, in order.

From the driver come ``("call", method, parcel of (args, kwargs))`` and ``("end",)``. To it go, in
the order of calls, ``("result", seconds, parcel of (result, spans))`` and, as the last thing that a
worker says, ``("failed", method, error, traceback)``.
"""

from __future__ import annotations

import importlib
import os
import pickle
import selectors
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf_core.errors import RuntimeFailure
from rlinf_core.protocols.runtime import Span, WorkerSpec
from rlinf_core.runtime.baton import Cancelled
from rlinf_core.runtime.client import Client, use
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.limits import raise_open_files, show_name
from rlinf_core.runtime.link import Link, Memory, Parcel
from rlinf_core.runtime.worker import Place, Worker, make_worker, public_method, take_notes


@dataclass(frozen=True)
class Assignment:
    """What a process is to be.

    Attributes:
        name: ``group[rank]``.
        order: number of its group in the order of launching.
        spec: what the worker is.
        place: where it finds itself.
        environment: variables on top of those there are.
        threads: threads that torch may use.
    """

    name: str
    order: int
    spec: WorkerSpec
    place: Place
    environment: Mapping[str, str]
    threads: int


def serve(connection: Connection, assignment: Assignment, fds: Sequence[int]) -> None:
    """Be the worker until the driver says that it is enough, or goes away."""
    raise_open_files()
    show_name(assignment.name)
    os.environ.update(assignment.environment)
    importlib.import_module("torch").set_num_threads(assignment.threads)
    memory = Memory(assignment.name)
    client = Client(assignment.name, Connection(socket.socket(fileno=fds[0])), memory)
    use(lambda: client)
    _Process(Link(connection, memory), memory, client, assignment).run()


class _Process:
    def __init__(
        self, driver: Link, memory: Memory, client: Client, assignment: Assignment
    ) -> None:
        self._driver, self._memory, self._client = driver, memory, client
        self._assignment = assignment

    def run(self) -> None:
        method, worker = "start", None
        try:
            worker = self._make()
            while True:
                message = self._next()
                if message[0] == "end":
                    break
                _, method, parcel = message
                self._call(method, worker, parcel)
        except Cancelled:  # the runtime closes, or the driver or the switchboard is gone
            pass
        except BaseException as error:
            text = traceback.format_exc()
            self._say(("failed", method, portable(error), text))
            raise
        else:
            self._client.leave()
        finally:
            if worker is not None:
                worker.close()

    def _make(self) -> Worker:
        assignment = self._assignment
        worker = make_worker(assignment.spec, assignment.place)
        if assignment.spec.takes_turns:
            devices = [device.index for device in assignment.place.devices]
            self._client.offload = worker.offload
            worker.lease = lambda: self._client.lease(devices, assignment.order, worker.onload)
        return worker

    def _next(self) -> Any:
        """Wait for the driver, and meanwhile leave the devices if somebody wants them."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._driver.connection, selectors.EVENT_READ)
            if self._assignment.spec.takes_turns:
                waiting.register(self._client, selectors.EVENT_READ)
                self._client.obey()
            while True:
                for ready, _ in waiting.select():
                    if ready.fileobj is not self._client:
                        return self._hear()
                    self._client.obey()

    def _hear(self) -> Any:
        try:
            return self._driver.receive()
        except EOFError:
            raise Cancelled from None

    def _say(self, message: object, parcels: Sequence[Parcel] = ()) -> None:
        try:
            self._driver.send(message, parcels)
        except OSError:
            raise Cancelled from None

    def _call(self, name: str, worker: Worker, parcel: Parcel) -> None:
        method = public_method(worker, name)
        args, kwargs = self._memory.unpack(parcel)
        began = time.monotonic_ns()
        result = method(*args, **kwargs)
        ended = time.monotonic_ns()
        call = Span(self._assignment.name, "call", name, began, ended, take_notes(worker))
        spans = [call, *self._client.spans()]
        answer = self._memory.pack((result, spans))
        self._say(("result", (ended - began) / 1e9, answer), [answer])


def portable(error: BaseException) -> BaseException:
    """Return an error that the driver can unpickle: the same, or one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeFailure(f"{type(error).__name__}: {error}")
    return error
