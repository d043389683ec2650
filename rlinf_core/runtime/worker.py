"""Worker: a plain class whose instances a runtime makes, calls and closes.

The classes that do a run's work stand in ``rlinf_core.runs.workers``; a runtime knows them by
their ``"module:Class"`` string only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rlinf_core.errors import RuntimeFailure, did_you_mean
from rlinf_core.placement import Device, GroupPlace
from rlinf_core.protocols.runtime import WorkerGroup, WorkerSpec


@dataclass(frozen=True)
class Place:
    """Where a worker finds itself.

    Attributes:
        group: name of its group.
        rank: its number within the group, from 0.
        size: number of workers in the group.
        devices: the devices it may use; empty where nothing was placed.
    """

    group: str
    rank: int = 0
    size: int = 1
    devices: tuple[Device, ...] = ()

    @property
    def torch_name(self) -> str:
        """What torch calls the device that its tensors live on."""
        return self.devices[0].torch_name if self.devices else "cpu"


def places(group: str, processes: int, placement: GroupPlace) -> list[Place]:
    """Return the place of each worker of a group."""
    if not placement:
        return [Place(group, rank, processes) for rank in range(processes)]
    size = len(placement)
    return [Place(group, rank, size, at.devices) for rank, at in enumerate(placement)]


def check_name(name: str, groups: Iterable[WorkerGroup]) -> None:
    """Refuse a second group of one name: workers are told apart by theirs.

    Raises:
        RuntimeFailure: there is a group of that name.
    """
    if any(group.name == name for group in groups):
        raise RuntimeFailure(f"there is a group {name!r} already; give this one another name")


class Worker:
    """Base of all workers. Public methods may be called by name from the driver.

    Args:
        place: where this worker finds itself; the runtime gives it.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lease: Callable[[], AbstractContextManager[object]] = nullcontext
        """Hold this worker's devices for as long as the block lasts, where it takes turns on them.

        Compute on a device within it, and wait for channels outside of it.
        """

        self.notes: dict[str, Any] = {}
        """What a method leaves here shows with its call in the timeline; plain data."""

    def offload(self) -> None:
        """Free the devices for another worker; called outside of :attr:`lease`."""

    def onload(self) -> None:
        """Come back to the devices; called when :attr:`lease` is entered after :meth:`offload`."""

    def close(self) -> None:
        """Free everything; called once, also after a failure."""


def make_worker(spec: WorkerSpec, place: Place) -> Worker:
    """Import a worker's class where it runs and make it."""
    module, _, name = spec.target.partition(":")
    worker = getattr(importlib.import_module(module), name)(place, **spec.arguments)
    if not isinstance(worker, Worker):
        raise TypeError(f"{spec.target} made a {type(worker).__name__}; wanted a Worker")
    return worker


def take_notes(worker: Worker) -> dict[str, Any]:
    """Return a worker's notes, and leave it none."""
    notes, worker.notes = worker.notes, {}
    return notes


def public_method(worker: Worker | None, name: str) -> Callable[..., Any]:
    """Return the method that a driver may call by this name.

    Raises:
        AttributeError: there is none; close matches are named.
    """
    method = None if name.startswith("_") else getattr(worker, name, None)
    if method is None:
        known = [m for m in dir(worker) if not m.startswith("_")]
        raise AttributeError(
            f"{type(worker).__name__} has no method {name!r}.{did_you_mean(name, known)}"
        )
    return method  # type: ignore[no-any-return]
