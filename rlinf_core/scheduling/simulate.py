"""Discrete-event simulation of a schedule: tasks of known length, on workers and devices.

A worker does its tasks one after another, in their order. A task starts once its worker is free,
all that it waits for has ended, and every device that it needs is free; a device serves one task at
a time, the one that has been ready longest first. Time jumps from the end of one task to the next.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


@dataclass(frozen=True)
class Task:
    """One stretch of work.

    Attributes:
        name: what it is, such as "act"; for whoever reads the schedule.
        worker: who does it.
        devices: which devices it needs, all at once.
        seconds: how long it takes.
        after: numbers of the tasks that must have ended before, by their place in the sequence.
    """

    name: str
    worker: str
    devices: tuple[str, ...]
    seconds: float
    after: tuple[int, ...] = ()


class Interval(NamedTuple):
    """When a task was done, in seconds from the start of the schedule."""

    began: float
    ended: float


def simulate(
    tasks: Sequence[Task],
    switching: Mapping[str, float] = MappingProxyType({}),
    free: Set[str] = frozenset(),
) -> list[Interval]:
    """Return when each task is done.

    Args:
        tasks: in an order in which each worker does its own.
        switching: worker to seconds that it takes longer where another worker had one of the
            devices last; for those that take turns there.
        free: devices that change hands at no cost.

    Raises:
        ValueError: some tasks wait for one another, and none of them could ever start.
    """
    queues: dict[str, deque[int]] = {}
    waiting = [len(set(task.after)) for task in tasks]
    followers: dict[int, list[int]] = {}
    for number, task in enumerate(tasks):
        queues.setdefault(task.worker, deque()).append(number)
        for earlier in set(task.after):
            followers.setdefault(earlier, []).append(number)
    done: list[Interval | None] = [None] * len(tasks)
    running: list[tuple[float, int]] = []  # by the time at which each will have ended
    ready: list[tuple[float, int]] = []  # by the time since when each has been ready
    working: set[str] = set()  # workers that do something, or are about to
    busy: set[str] = set()  # devices
    had: dict[str, str] = {}  # device to the worker that had it last

    def offer(worker: str, now: float) -> None:
        """Take note that a worker's next task could start, but for its devices."""
        queue = queues[worker]
        if queue and not waiting[queue[0]] and worker not in working:
            heapq.heappush(ready, (now, queue.popleft()))
            working.add(worker)

    for worker in queues:
        offer(worker, 0.0)
    now = 0.0
    while ready or running:
        held = []
        while ready:
            since, number = heapq.heappop(ready)
            task = tasks[number]
            if busy.intersection(task.devices):
                held.append((since, number))
                continue
            moved = any(
                had.get(device, task.worker) != task.worker
                for device in task.devices
                if device not in free
            )
            seconds = task.seconds + (switching.get(task.worker, 0.0) if moved else 0.0)
            busy.update(task.devices)
            had.update(dict.fromkeys(task.devices, task.worker))
            done[number] = Interval(now, now + seconds)
            heapq.heappush(running, (now + seconds, number))
        ready = held
        heapq.heapify(ready)
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] == now:
            _, number = heapq.heappop(running)
            task = tasks[number]
            working.remove(task.worker)
            busy.difference_update(task.devices)
            for follower in followers.get(number, ()):
                waiting[follower] -= 1
                offer(tasks[follower].worker, now)
            offer(task.worker, now)
    finished = [interval for interval in done if interval is not None]
    if len(finished) < len(tasks):
        stuck = next(n for n, interval in enumerate(done) if interval is None)
        raise ValueError(
            f"task {stuck} ({tasks[stuck].name} of {tasks[stuck].worker}) can never start: tasks "
            "wait for one another"
        )
    return finished


def busy_seconds(
    tasks: Sequence[Task], done: Sequence[Interval], first: float, last: float
) -> dict[str, float]:
    """Return how long each device was busy between two times, in seconds."""
    spent: dict[str, float] = {}
    for task, (began, ended) in zip(tasks, done, strict=True):
        within = max(min(ended, last) - max(began, first), 0.0)
        for device in task.devices:
            spent[device] = spent.get(device, 0.0) + within
    return spent
