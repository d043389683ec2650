"""The runtime ``ray``: an actor for every worker, on one machine or on a cluster.

Starts, listens to and ends actors; ``handles.py`` has the driver's handles of them, ``actor.py``
what runs in them, ``board.py`` the actor that keeps channels and leases, ``reservation.py`` the
devices, ``cluster.py`` the Ray that all of it uses.
What a runtime must do is stated in ``rlinf_core.protocols.runtime``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf_core.api import (
    ChannelSpec,
    GroupPlace,
    Place,
    ProcessPlace,
    RequestError,
    RuntimeFailure,
    Span,
    WorkerSpec,
    toolkit,
)
from rlinf_plugin_ray import failures, logs
from rlinf_plugin_ray.actor import CONCURRENCY, Assignment, Whereabouts, WorkerActor
from rlinf_plugin_ray.board import Board
from rlinf_plugin_ray.client import RayChannel, forget
from rlinf_plugin_ray.cluster import Cluster, too_long
from rlinf_plugin_ray.config import RayConfig
from rlinf_plugin_ray.deadlines import blame
from rlinf_plugin_ray.handles import DriverClient, RayGroup, Remote
from rlinf_plugin_ray.inbox import Inbox
from rlinf_plugin_ray.reservation import Reservation, Spot

_GRACE = 5.0  # seconds that workers get to close what they hold
_CAUSE = 1.0  # seconds to wait for the failure from which the one that was heard follows
_END = 3.0  # seconds for who was killed to be gone, and for another machine to answer
_STOOD_STILL = 2.0  # seconds by which a wait is longer where this process was stopped meanwhile
_MANY = 100_000  # requests that may wait on the board at a time

# Neither asks Ray for anything: a worker's devices were reserved before.
_WORKER = ray.remote(num_cpus=0, concurrency_groups=CONCURRENCY)(WorkerActor)
_BOARD = ray.remote(num_cpus=0, max_concurrency=_MANY)(Board)


class RayRuntime:
    """An actor per worker; see :class:`rlinf_core.protocols.runtime.Runtime`.

    Args:
        config: its options.
    """

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self.inbox = Inbox()
        self.failure: RuntimeFailure | None = None
        self.epoch = 0
        self.node = ""  # Ray's name for the machine of this process
        self.board_gone = False
        self._follows = False  # whether the failure only follows from one that is yet to be heard
        self._cluster: Cluster | None = None
        self._reservation = Reservation(
            config.resources, config.patience, lambda: self.inbox.hear(0.0)
        )
        self._board: Any = None
        self._client: DriverClient | None = None
        self._groups: list[RayGroup] = []
        self._channels: dict[str, RayChannel] = {}
        self._spans: deque[Span] = deque(maxlen=toolkit.MOST_SPANS)
        self._closed = False

    # --- the protocol ----------------------------------------------------------------------------

    def reserve(self, places: Iterable[GroupPlace]) -> None:
        """Take the devices of groups that will be launched, all of them or none.

        Raises:
            RequestError: the cluster has no such devices, or there is no such cluster.
            RuntimeFailure: others have them.
        """
        groups = list(places)
        self._start(groups)
        self._reservation.take(groups)

    def launch(self, spec: WorkerSpec, processes: int = 1, placement: GroupPlace = ()) -> RayGroup:
        """Start the actors of a group, without waiting until they run."""
        toolkit.check_name(spec.name, self._groups)
        self.reserve([placement])
        workers = []
        for place in toolkit.places(spec.name, processes, placement):
            if placement:
                at = placement[place.rank]
                workers.append(self._worker(spec, place, at, self._reservation.spot(at)))
            else:
                here = NodeAffinitySchedulingStrategy(self.node, soft=True)
                workers.append(self._worker(spec, place, ProcessPlace(()), Spot(here, (), {})))
        group = RayGroup(self, spec, workers)
        self._groups.append(group)
        return group

    def channel(self, name: str, spec: ChannelSpec | None = None) -> RayChannel:
        """Return the channel of that name, making it where there is none."""
        if name not in self._channels:
            spec = spec or ChannelSpec()
            if spec.policy is not None:
                toolkit.resolve_ref(spec.policy)  # a policy that is not there is told here
            self._start([])
            assert self._client is not None  # it was started
            self._channels[name] = RayChannel(name, spec, self._client)
        return self._channels[name]

    def spans(self) -> list[Span]:
        """Return the spans of calls that have ended since the last time, and the driver's own."""
        taken = list(self._spans)
        self._spans.clear()
        return taken if self._client is None else taken + self._client.spans()

    def recover(self) -> list[tuple[str, int]]:
        """Make failed workers anew, and end what all others are at."""
        self.hear(0.0)  # of those that died with the first
        failed = [(g, r) for g in self._groups for r, w in enumerate(g.workers) if w.failure]
        for group in {id(group): group for group, _ in failed}.values():
            group.restarts -= sum(1 for other, _ in failed if other is group)
        hopeless = [g for g, r in failed if _is_hopeless(g.workers[r]) or g.restarts < 0]
        if not failed or hopeless or self.board_gone:
            self.raise_failure()
            return []
        self.failure, self._follows = None, False
        self.epoch += 1
        self._end([group.workers[rank] for group, rank in failed])
        for worker in self._workers():
            worker.drop(self.epoch)
        self._finish(self._board.begin.remote(self.epoch))
        for group, rank in failed:
            group.workers[rank] = group.workers[rank].again()
        return [(group.name, rank) for group, rank in failed]

    def interrupt(self) -> None:
        """Make the driver's current or next wait raise ``KeyboardInterrupt``; signal-safe."""
        self.inbox.interrupt()

    def close(self) -> None:
        """End every actor and give back all devices; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._client is not None:
            forget(self._client)
        if self._cluster is not None:
            try:
                self._board.begin.remote(self.epoch + 1)  # nobody waits for anything any more
                self._end(self._workers()[::-1])
                ray.kill(self._board)
                self._reservation.release()
            finally:
                self._cluster.close()
        self.failure = self.failure or RuntimeFailure("the runtime is closed")

    # --- for futures and handles -----------------------------------------------------------------

    def hear(self, timeout: float | None) -> None:
        """Take note of what has happened, waiting for it up to ``timeout`` seconds.

        Raises:
            KeyboardInterrupt: :meth:`interrupt` was called.
        """
        if self._closed:
            return
        wanted = min((s for s in (timeout, self._left()) if s is not None), default=None)
        began = time.monotonic()
        self.inbox.hear(wanted)
        now = time.monotonic()
        busy = [worker for worker in self._workers() if worker.busy]
        if wanted is not None and (more := now - began - wanted) > _STOOD_STILL:
            for worker in busy:
                worker.allow(more)
        late = [worker for worker in busy if worker.due() <= now]
        if late and self.failure is None:
            culprit, why = blame(late, busy, self._ask_who_waits())
            culprit.expire(why)

    async def until(self, news: asyncio.Event) -> None:
        """Wait until there is something to hear, or somebody's time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), self._left())

    def keep(self, spans: Iterable[Span]) -> None:
        """Take the spans of a call."""
        self._spans += spans

    def lose(self, worker: Remote) -> None:
        """Tell the board of a worker that is gone, and note why."""
        assert worker.failure is not None  # it is gone
        self._board.lose.remote(worker.name, f"{worker.name}, which wrote to it, is gone")
        self.fail(worker.failure, follows=self.board_gone)

    def fail(self, failure: RuntimeFailure, follows: bool = False) -> None:
        """Note a failure, which every wait raises.

        The first one counts, but for one that only follows from another.
        """
        if self.failure is None or (self._follows and not follows):
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

    def there(self, where: Whereabouts, do: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker's machine; return None where that is unknown, or lost."""
        if where.node in ("", self.node):
            return do(*arguments) if where.node else None
        at = NodeAffinitySchedulingStrategy(where.node, soft=False)
        task = ray.remote(num_cpus=0, max_retries=0)(do).options(scheduling_strategy=at)
        with contextlib.suppress(RayError):
            return ray.get(task.remote(*arguments), timeout=_END)
        return None

    # --- within ----------------------------------------------------------------------------------

    def _start(self, places: Sequence[GroupPlace]) -> None:
        """Find or start Ray, and the board, where that has not been done."""
        if self._closed:
            raise RuntimeFailure("the runtime is closed")
        if self._cluster is not None:
            return
        devices = {d.index: d for place in places for at in place for d in at.devices}.values()
        slots = sum(1 for device in devices if device.torch_name == "cpu")
        labels = frozenset(device.node for device in devices) - {""}
        self._cluster = Cluster(self._config, slots, labels)
        self.node = self._cluster.node
        here = NodeAffinitySchedulingStrategy(self.node, soft=False)
        self._board = _BOARD.options(scheduling_strategy=here).remote()
        self.inbox.watch(self._board.watch.remote(), self._board_lost)
        self._client = DriverClient(self, self._board, uuid.uuid4().hex)

    def _worker(self, spec: WorkerSpec, place: Place, at: ProcessPlace, spot: Spot) -> Remote:
        assert self._cluster is not None  # it was started
        assert self._client is not None
        environment = dict(at.environment)
        long = too_long(environment)
        variables = {name: v for name, v in environment.items() if name not in long}
        if self._cluster.own:  # else each machine has variables of its own
            long = too_long(os.environ) | long
        if spot.variables:
            variables |= {**spot.variables, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        wants: dict[str, Any] = {"env_vars": variables} if variables else {}
        labels = {device.node for device in at.devices}
        for label in labels & self._config.interpreters.keys():
            wants["py_executable"] = self._config.interpreters[label]
        place = Place(place.group, place.rank, place.size, spot.devices)
        name, order = f"{place.group}[{place.rank}]", len(self._groups)
        threads = _threads({**os.environ, **environment})
        assignment = Assignment(name, order, spec, place, long, threads, self._client.key)
        actor = _WORKER.options(
            scheduling_strategy=spot.strategy, **({"runtime_env": wants} if wants else {})
        )
        return Remote(self, assignment, partial(actor.remote, name, self._board))

    def _workers(self) -> list[Remote]:
        return [worker for group in self._groups for worker in group.workers]

    def _ask_who_waits(self) -> dict[str, str]:
        try:
            return dict(ray.get(self._board.waits.remote(), timeout=_END))
        except RayError:  # the loss of the board is told by itself
            return {}

    def _left(self) -> float | None:
        """Return the seconds until the first worker must have said something."""
        first = min((worker.due() for worker in self._workers()), default=float("inf"))
        return None if first == float("inf") else max(0.0, first - time.monotonic())

    def _board_lost(self, done: Future[Any]) -> None:
        self.board_gone = True
        how = failures.death(done.exception() or RuntimeFailure("it ended by itself"))
        what = "the board, the actor that keeps channels and leases, is gone"
        self.fail(RuntimeFailure(f"{what}: {how}"))

    def _end(self, workers: Sequence[Remote]) -> None:
        """End workers: those that can get a few seconds to close what they hold."""
        self._finish(*(worker.end() for worker in workers), seconds=_GRACE)
        ends = {worker.kill(): worker for worker in workers}
        for end in self._finish(*ends, seconds=1.0):  # it does not listen: it is stopped
            self.there(ends[end].where, logs.kill, ends[end].where.pid)
        self._finish(*ends)

    def _finish(self, *refs: ray.ObjectRef, seconds: float = _END) -> list[ray.ObjectRef]:
        """Wait until calls have come back, in whichever way; return those that did not."""
        if not refs:
            return []
        wanted = {"num_returns": len(refs), "timeout": seconds, "fetch_local": False}
        return ray.wait(list(refs), **wanted)[1]


def _is_hopeless(worker: Remote) -> bool:
    """Return whether a worker failed for what will not change: a wrong request."""
    return worker.failure is not None and isinstance(worker.failure.cause, RequestError)


def _threads(variables: Mapping[str, str]) -> int | None:
    """Return how many threads torch is told to use; None where it may use all processors."""
    given = variables.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else None
