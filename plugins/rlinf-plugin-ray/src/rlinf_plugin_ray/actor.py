"""What runs in a worker's actor: make the worker, do as the driver calls, in order.

The worker lives in the one thread in which calls run. Others answer meanwhile: to ``watch``, whose
call ends only with the actor, so that its end is noticed also while nothing else is asked of it; to
``leave``, by which the board asks a worker that takes turns for its devices; and to ``begin``.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from rlinf_core.api import Place, ProducerGone, RuntimeFailure, Span, Worker, WorkerSpec, toolkit
from rlinf_plugin_ray import logs
from rlinf_plugin_ray.client import Cancelled, Client
from rlinf_plugin_ray.parcels import Parcel, lay_open, unwrap


@dataclass(frozen=True)
class Assignment:
    """What an actor is to be.

    Attributes:
        name: ``group[rank]``.
        order: number of its group in the order of launching.
        spec: what the worker is.
        place: where it finds itself.
        environment: variables that are too long to be given to a process when it starts.
        threads: threads that torch may use; None for all processors of the machine.
        key: of the runtime, for channels.
    """

    name: str
    order: int
    spec: WorkerSpec
    place: Place
    environment: Mapping[str, str]
    threads: int | None
    key: str


class Whereabouts(NamedTuple):
    """Where an actor has come to be: Ray's node, its process and log files there, and its clock.

    ``ahead`` is by how many nanoseconds the machine's monotonic clock is behind the time of day.
    """

    node: str
    pid: int
    logs: tuple[str, ...]
    ahead: int


class Result(NamedTuple):
    """What a call came to: seconds, and result and spans in a parcel."""

    seconds: float
    parcel: Parcel


class Failure(NamedTuple):
    """What was raised, pickled, with its traceback and the last lines that the worker wrote."""

    error: bytes
    traceback: str
    log: str


def clock() -> int:
    """Return the nanoseconds by which the time of day is ahead of this machine's own clock."""
    return time.time_ns() - time.monotonic_ns()


class WorkerActor:
    """One worker.

    Args:
        name: ``group[rank]``.
        board: the actor that keeps channels and leases.
    """

    def __init__(self, name: str, board: Any) -> None:
        self._name, self._board = name, board
        self._worker: Worker | None = None
        self._client: Client | None = None
        self._epoch, self._failed = 0, False

    def __repr__(self) -> str:
        return self._name  # before what it prints, where Ray shows that

    def where(self) -> Whereabouts:
        """Return where this is."""
        node = ray.get_runtime_context().get_node_id()
        logs.answer_to_signal()
        return Whereabouts(node, os.getpid(), logs.own_files(), clock())

    def start(self, parcel: Parcel) -> Failure | None:
        """Make the worker."""
        try:
            assignment: Assignment = unwrap(parcel)
            os.environ.update(assignment.environment)
            _use_threads(assignment.threads or toolkit.processors())
            self._client = Client(assignment.name, self._board, assignment.key)
            self._worker = self._make(assignment, self._client)
        except BaseException as error:
            return self._fail(error)
        return None

    def _make(self, assignment: Assignment, client: Client) -> Worker:
        worker = toolkit.make_worker(assignment.spec, assignment.place)
        if assignment.spec.takes_turns:
            devices = [device.index for device in assignment.place.devices]
            client.offload = worker.offload
            worker.lease = lambda: client.lease(devices, assignment.order, worker.onload)
            ray.get(self._board.join.remote(client.name, ray.get_runtime_context().current_actor))
        return worker

    def call(self, epoch: int, name: str, parcel: Parcel) -> Result | Failure | None:
        """Call a method; return None where that was cancelled, before or meanwhile."""
        client = self._client
        if client is None or self._failed or epoch < self._epoch:
            return None
        with client.busy:
            client.epoch = self._epoch = epoch
            try:
                method = toolkit.public_method(self._worker, name)
                args, kwargs = unwrap(parcel)
                began = time.monotonic_ns()
                result = method(*args, **kwargs)
                ended = time.monotonic_ns()
                assert self._worker is not None  # it has a method
                call = Span(
                    self._name, "call", name, began, ended, toolkit.take_notes(self._worker)
                )
                spans = [call, *client.spans()]
                return Result((ended - began) / 1e9, lay_open((result, spans)))
            except (Cancelled, ProducerGone) as error:  # nothing is wrong with this worker
                client.spans()
                return _failure(error) if isinstance(error, ProducerGone) else None
            except BaseException as error:
                return self._fail(error)

    def end(self) -> None:
        """Close the worker, once; nothing is called after it."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _fail(self, error: BaseException) -> Failure:
        """Note that nothing is to be called any more, and return why."""
        self._failed = True
        return _failure(error)

    @ray.method(concurrency_group="aside")
    def begin(self, epoch: int) -> None:
        """Take note of a new epoch: calls of older ones are not begun."""
        self._epoch = max(self._epoch, epoch)

    @ray.method(concurrency_group="aside")
    def leave(self) -> None:
        """Leave the devices, or let the worker do so at the end of its lease."""
        if self._client is not None:
            self._client.leave()

    @ray.method(concurrency_group="watch")
    def watch(self) -> None:
        """Never return: the call fails when the actor is gone."""
        threading.Event().wait()


CONCURRENCY = {"aside": 2, "watch": 1}
"""Threads of an actor beside the one in which calls run."""


def _use_threads(number: int) -> None:
    """Let torch, and what a simulator starts, use so many threads; Ray would allow one."""
    os.environ["OMP_NUM_THREADS"] = str(number)  # torch looks when it is imported
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(number)


def _failure(error: BaseException) -> Failure:
    text = traceback.format_exc()
    if isinstance(error, RayError):
        error = RuntimeFailure(f"{type(error).__name__}: {error}")
    return Failure(pickle.dumps(toolkit.portable(error)), text, logs.tail(logs.own_files()))
