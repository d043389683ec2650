"""What runs in a worker's process: make the worker, do as the driver calls, in order.

From the driver come ``("call", method, parcel of (args, kwargs))``, ``("end",)`` and ``("drop",
owners)``: calls before it are not to be begun, one that waits has been ended by the switchboard,
and the memory of these owners will not be read any more. To it go ``("made",)``, then, in the order
of calls, ``("result", seconds, parcel of (result, spans))`` or ``("failed", method, error,
traceback)``, and ``("dropped",)`` when a drop was obeyed. A call that only failed because somebody
else did leaves the worker as it was; after any other failure the worker ends.
"""

from __future__ import annotations

import importlib
import os
import pickle
import selectors
import socket
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlinf_core.errors import ProducerGone, RuntimeFailure
from rlinf_core.protocols.runtime import Span, WorkerSpec
from rlinf_core.runtime.baton import Cancelled, Dropped
from rlinf_core.runtime.client import Client, use
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.limits import raise_open_files, show_name
from rlinf_core.runtime.link import Link, Memory, Parcel
from rlinf_core.runtime.logs import write_to
from rlinf_core.runtime.worker import Place, Worker, make_worker, public_method, take_notes


@dataclass(frozen=True)
class Assignment:
    """What a process is to be.

    Attributes:
        name: ``group[rank]``.
        owner: name of its memory, which no worker had before.
        order: number of its group in the order of launching.
        spec: what the worker is.
        place: where it finds itself.
        environment: variables on top of those there are.
        threads: threads that torch may use.
    """

    name: str
    owner: str
    order: int
    spec: WorkerSpec
    place: Place
    environment: Mapping[str, str]
    threads: int


def serve(connection: Connection, assignment: Assignment, fds: Sequence[int]) -> None:
    """Be the worker until the driver says that it is enough, or goes away."""
    switchboard, log = fds
    write_to(log)
    raise_open_files()
    show_name(assignment.name)
    os.environ.update(assignment.environment)
    importlib.import_module("torch").set_num_threads(assignment.threads)
    memory = Memory(assignment.owner)
    client = Client(assignment.name, Connection(socket.socket(fileno=switchboard)), memory)
    use(lambda: client)
    _Process(Link(connection, memory), memory, client, assignment).run()


class _Process:
    def __init__(
        self, driver: Link, memory: Memory, client: Client, assignment: Assignment
    ) -> None:
        self._driver, self._memory, self._client = driver, memory, client
        self._assignment = assignment
        self._calls: deque[tuple[str, Parcel]] = deque()
        self._ended = False  # whether the driver said that it is enough
        self._interrupted = False  # whether a call was ended and the driver has yet to say why

    def run(self) -> None:
        method, worker = "start", None
        try:
            worker = self._make()
            self._say(("made",))
            while not self._ended:
                self._hear()
                while self._calls and not self._interrupted and not self._ended:
                    method, parcel = self._calls.popleft()
                    self._call(method, worker, parcel)
                    self._hear_what_is_there()
        except Cancelled:  # the runtime closes, or the driver or the switchboard is gone
            pass
        except BaseException as error:
            self._say_failed(method, error)
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

    # --- what the driver says --------------------------------------------------------------------

    def _hear(self) -> None:
        """Wait for the driver, and meanwhile leave the devices if somebody wants them."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._driver.connection, selectors.EVENT_READ)
            if self._assignment.spec.takes_turns:
                waiting.register(self._client, selectors.EVENT_READ)
                self._client.obey()
            while not any(ready.fileobj is not self._client for ready, _ in waiting.select()):
                self._client.obey()
        self._hear_what_is_there()

    def _hear_what_is_there(self) -> None:
        """Take what the driver has said, all of it: the last may take back what came before."""
        while not self._ended and self._driver.connection.wait(0):
            try:
                kind, *content = self._driver.receive()
            except EOFError:
                raise Cancelled from None
            if kind == "call":
                method, parcel = content
                self._calls.append((method, parcel))
            elif kind == "drop":
                self._drop(*content)
            else:
                self._ended = True

    def _drop(self, gone: Sequence[str]) -> None:
        for _, parcel in self._calls:
            self._memory.unpack(parcel)  # and forget it: its memory is free again
        self._calls.clear()
        self._memory.forget(gone)
        self._interrupted = False
        self._client.resume()
        self._say(("dropped",))

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, name: str, worker: Worker, parcel: Parcel) -> None:
        method = public_method(worker, name)
        args, kwargs = self._memory.unpack(parcel)
        began = time.monotonic_ns()
        try:
            result = method(*args, **kwargs)
            self._client.settle()
        except (Dropped, ProducerGone) as error:  # nothing is wrong with this worker
            self._interrupted = True
            take_notes(worker)
            self._client.spans()
            if isinstance(error, ProducerGone):
                self._say_failed(name, error)
            return
        ended = time.monotonic_ns()
        call = Span(self._assignment.name, "call", name, began, ended, take_notes(worker))
        spans = [call, *self._client.spans()]
        answer = self._memory.pack((result, spans))
        self._say(("result", (ended - began) / 1e9, answer), [answer])

    def _say_failed(self, method: str, error: BaseException) -> None:
        self._say(("failed", method, portable(error), traceback.format_exc()))

    def _say(self, message: object, parcels: Sequence[Parcel] = ()) -> None:
        try:
            self._driver.send(message, parcels)
        except OSError:
            raise Cancelled from None


def portable(error: BaseException) -> BaseException:
    """Return an error that the driver can unpickle: the same, or one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeFailure(f"{type(error).__name__}: {error}")
    return error
