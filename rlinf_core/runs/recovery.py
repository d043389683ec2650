"""Recovery: how a run goes on after a worker of a group that may restart has failed.

The runtime makes the worker anew, with nothing in it; the run makes of it what it was, and does
again what the failure has spoiled: part by part, as it says (:meth:`Recovery.persist`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlinf_core.config.validate import Run
from rlinf_core.errors import RuntimeFailure, WorkerFailed
from rlinf_core.protocols.runtime import Runtime, WorkerGroup

_POLL = 0.02  # seconds between two looks at a call that goes on although somebody failed

T = TypeVar("T")
Made = Sequence[tuple[str, int]]
"""Group and rank of every worker that was made anew."""


class Recovery:
    """Counts failures that a run survives, and repeats what they have spoiled.

    Args:
        run: the validated run; its ``cluster.restarts`` say whether anything is survived.
        runtime: where the workers run.
        report: takes lines meant for a person.

    Attributes:
        restarts: workers that were made anew.
        redone: iterations that were collected again from their beginning.
        dropped: iterations of which lost trajectories were dropped.
    """

    def __init__(self, run: Run, runtime: Runtime, report: Callable[[str], None]) -> None:
        declared = run.config.cluster.restarts
        self.declared = bool(declared.simulation or declared.rollout)
        self.drops = declared.lost == "drop"
        self._runtime, self._report = runtime, report
        self.restarts = self.redone = self.dropped = 0

    def persist(self, part: Callable[[], T], restore: Callable[[Made], None]) -> T:
        """Do a part of the run, again and again until nobody fails who may restart.

        Args:
            part: what to do; it can be done again after ``restore``.
            restore: makes of new workers what the old ones were before the part.

        Raises:
            WorkerFailed: somebody failed who may not restart, or not any more.
        """
        while True:
            try:
                return part()
            except WorkerFailed as failure:
                if not self.declared:
                    raise
                self._recover(failure, restore)

    def finish(self, future: Any) -> list[Any]:
        """Wait for a call that must not be repeated, whoever else fails meanwhile."""
        try:
            return list(future.wait())
        except WorkerFailed:
            if not self.declared:
                raise
            while not future.done():
                time.sleep(_POLL)
            try:
                return list(future.wait())
            except RuntimeFailure:
                self._runtime.recover()  # raises: it was one of those that were called
                raise

    def metrics(self) -> dict[str, float]:
        """Return what is logged of failures; nothing where none is survived."""
        if not self.declared:
            return {}
        return {f"failures/{name}": float(count) for name, count in self.counts().items()}

    def counts(self) -> dict[str, int]:
        """Return how many workers were made anew, and what that did to iterations."""
        return {
            "restarts": self.restarts,
            "redone_steps": self.redone,
            "dropped_steps": self.dropped,
        }

    def _recover(self, failure: WorkerFailed, restore: Callable[[Made], None]) -> None:
        made: list[tuple[str, int]] = []
        while True:
            new = self._runtime.recover()
            self.restarts += len(new)
            made += new
            self._tell(failure, new)
            try:
                restore(made)
                return
            except WorkerFailed as another:
                failure = another

    def _tell(self, failure: WorkerFailed, new: Made) -> None:
        why = f"{type(failure.cause).__name__}: {failure.cause}".splitlines()[0]
        who = ", ".join(f"{group}[{rank}]" for group, rank in new)
        self._report(
            f"{failure.group}[{failure.rank}].{failure.method} failed ({why}); made anew: {who}"
        )


class Collected:
    """Where the simulators of a run were when an iteration was collected, to go back to.

    Args:
        simulation: the group.
        whole: whether episodes under way can be restored, and are kept for that.
        grouped: whether the episodes of all environments end with each iteration.
        drops: whether those that have not failed stay where they are.
    """

    def __init__(self, simulation: WorkerGroup, whole: bool, grouped: bool, drops: bool) -> None:
        self._simulation, self._whole = simulation, whole and not drops
        self._grouped, self._drops = grouped, drops
        self._states: list[Any] = []

    def ask(self) -> Any:
        """Ask the simulators where they are; returns a future."""
        return self._simulation.call("remember", self._whole)

    def keep(self, states: list[Any]) -> None:
        """Take what they answered."""
        self._states = states

    def back(self, made: Made, spoiled: bool) -> bool:
        """Put simulators back; return whether episodes under way were lost by that.

        Args:
            made: workers that were made anew.
            spoiled: whether all others have moved on, too.
        """
        new = {rank for group, rank in made if group == self._simulation.name}
        everyone = spoiled and (self._grouped or not self._drops)
        ranks = range(self._simulation.size) if everyone else sorted(new)
        for rank in ranks:
            skip = spoiled and self._drops
            self._simulation.call("go_back", self._states[rank], skip, ranks=[rank]).wait()
        return bool(ranks) and not self._whole and not self._grouped
