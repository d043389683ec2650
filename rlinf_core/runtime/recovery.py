"""Recovery: how the runtime ``processes`` goes on after workers have failed.

Every wait in the switchboard is ended and every channel emptied; then all living workers are told
to begin nothing that was called before, and failed ones are forked anew under their old names. A
worker that computes is not disturbed: it is waited for, within the deadline of what it is at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlinf_core.errors import RequestError, WorkerFailed
from rlinf_core.runtime.remote import ProcessGroup, Remote
from rlinf_core.runtime.verbs import Verb
from rlinf_core.runtime.zygote import end_children

if TYPE_CHECKING:
    from rlinf_core.runtime.processes import ProcessRuntime

_GRACE = 2.0  # seconds that a failed worker gets to close what it holds


def recover(runtime: ProcessRuntime, groups: Sequence[ProcessGroup]) -> list[tuple[str, int]]:
    """Make failed workers anew, and those that fail meanwhile.

    Raises:
        RuntimeFailure: nobody can be made anew, or not these.
    """
    made: list[tuple[str, int]] = []
    while runtime.failure is not None:
        failed = _failed(runtime, groups)
        for group, remote in failed:
            group.restarts -= 1
            made.append((group.name, remote.place.rank))
        _renew(runtime, failed)
    return made


def _failed(
    runtime: ProcessRuntime, groups: Sequence[ProcessGroup]
) -> list[tuple[ProcessGroup, Remote]]:
    """Return the workers to be made anew; raise what forbids it."""
    while runtime.anything_to_hear():  # who died with the first one
        runtime.hear(0.0)
    failed = [(g, worker) for g in groups for worker in g.workers if worker.failure is not None]
    there = runtime.board is not None and runtime.board.failure is None
    if not failed or not there or runtime.zygote is None or not runtime.zygote.alive:
        runtime.raise_failure()
    for group in groups:
        mine: list[WorkerFailed] = [w.failure for g, w in failed if g is group and w.failure]
        hopeless = [f for f in mine if isinstance(f.cause, RequestError)]
        if hopeless or len(mine) > group.restarts:
            failure = (hopeless or mine)[-1]
            raise failure from failure.cause
    return failed


def _renew(runtime: ProcessRuntime, failed: Sequence[tuple[ProcessGroup, Remote]]) -> None:
    end_children([remote.child for _, remote in failed], _GRACE)
    gone = [remote.assignment.owner for _, remote in failed]
    runtime.leave()
    _empty_channels(runtime, gone)
    living = [worker for worker in runtime.workers() if worker.failure is None]
    for worker in living:
        worker.drop(gone)
    runtime.memory.forget(gone)
    runtime.go_on()
    for group, remote in failed:
        group.workers[remote.place.rank] = runtime.fork(remote.assignment)
    while runtime.failure is None and any(worker.dropping for worker in living):
        runtime.hear(None)


def _empty_channels(runtime: ProcessRuntime, gone: Sequence[str]) -> None:
    board = runtime.board
    assert board is not None
    before = board.resets
    board.tell(Verb.RESET, gone)
    while board.resets == before:
        if board.failure is not None:
            raise board.failure
        runtime.hear(None)
