"""Evaluation: one greedy episode from each declared initial state, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.data.outcomes import Episode, wilson_interval
from rlinf_core.errors import RequestError, RuntimeFailure, WorkerFailed
from rlinf_core.protocols.runtime import WorkerGroup
from rlinf_core.protocols.simulator import Spaces
from rlinf_core.runs.layout import stage_keys, stream_channel
from rlinf_core.runs.session import Session
from rlinf_core.runs.video import write_grid

_RECORDED = 9  # episodes in a video's grid


@dataclass(frozen=True)
class Evaluation:
    """Outcome of an evaluation; intervals cover 95% (Wilson).

    Success is None where the simulator does not report it.
    """

    split: str
    success_once: float | None
    success_once_interval: tuple[float, float] | None
    success_at_end: float | None
    success_at_end_interval: tuple[float, float] | None
    episodes: int
    return_mean: float
    length_mean: float
    initial_states: list[str]

    @staticmethod
    def of(split: str, episodes: Sequence[Episode], success: bool) -> Evaluation:
        """Sum up finished episodes, in the order of their initial states."""
        done = sorted(episodes, key=lambda e: int(e.state.rpartition("/")[2]))
        count = len(done)
        once, at_end = (sum(getattr(e, f"success_{w}") for e in done) for w in ("once", "at_end"))
        return Evaluation(
            split=split,
            success_once=once / count if success else None,
            success_once_interval=wilson_interval(once, count) if success else None,
            success_at_end=at_end / count if success else None,
            success_at_end_interval=wilson_interval(at_end, count) if success else None,
            episodes=count,
            return_mean=sum(e.total for e in done) / count,
            length_mean=sum(e.length for e in done) / count,
            initial_states=[e.state for e in done],
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain data with its ``schema_version``."""
        return {"schema_version": 1, **asdict(self)}

    def metrics(self) -> dict[str, float]:
        """Return what is logged when a run evaluates on its way."""
        found = {
            "evaluation/success_once": self.success_once,
            "evaluation/success_at_end": self.success_at_end,
            "evaluation/return": self.return_mean,
        }
        return {name: value for name, value in found.items() if value is not None}

    def sentence(self) -> str:
        """Return the result in words."""
        which = "initial states" if self.split == "train" else "held-out initial states"
        states = f"{self.episodes} {which}"
        if self.success_once is None or self.success_once_interval is None:
            return f"mean return {self.return_mean:.1f} over {states}"
        low, high = self.success_once_interval
        return (
            f"success {self.success_once:.0%} of {states} (95% interval {low:.0%} to {high:.0%}), "
            f"{self.success_at_end:.0%} still solved at the end, "
            f"mean return {self.return_mean:.1f}"
        )


def check_states(simulation: WorkerGroup, split: str, episodes: int) -> None:
    """Raise ``RequestError`` where ``split`` has fewer initial states than episodes are asked."""
    try:
        there = simulation.call("count_states", split).wait()[0]
    except WorkerFailed as failure:
        if isinstance(failure.cause, RuntimeFailure):  # it died, say: that says nothing of states
            raise
        raise RequestError(f"evaluation.split={split}: {failure.cause}") from failure
    if episodes > there:
        raise RequestError(
            f"evaluation.episodes={episodes}, but the split {split!r} has {there} initial states "
            f"and each is visited once; ask for at most {there}"
        )


class Evaluator:
    """Evaluates with environments of its own, so that training's are left alone.

    Args:
        session: makes the groups, when they are first needed.
        rollout: the group that acts, with the weights to evaluate.
    """

    def __init__(self, session: Session, rollout: WorkerGroup) -> None:
        self._session, self._rollout = session, rollout
        self._envs = session.run.config.evaluation.envs or session.run.config.collect.envs
        self._groups: dict[str, WorkerGroup] = {}

    def run(self, split: str, episodes: int) -> Evaluation:
        """Visit the first ``episodes`` initial states of ``split``, each exactly once."""
        parts = self._visit(self._group("evaluation", min(self._envs, episodes)), split, episodes)
        done = [episode for part, _, _ in parts for episode in part]
        return Evaluation.of(split, done, self._session.simulator_can(Capability.SUCCESS))

    def record(self, split: str, path: Path) -> str:
        """Write a video grid of the first few episodes; return why it cannot be made, or ""."""
        if not self._session.simulator_can(Capability.RENDER):
            return "this simulator renders nothing"
        episodes = min(_RECORDED, self._session.run.config.evaluation.episodes)
        parts = self._visit(self._group("recording", episodes), split, episodes, frames=True)
        notes: list[str] = [note for _, _, note in parts if note]
        if notes:
            return notes[0]
        write_grid(path, [frames for _, frames, _ in parts])
        return ""

    def spaces(self, episodes: int) -> Spaces:
        """Return what one environment shows and takes."""
        group = self._group("evaluation", min(self._envs, episodes))
        check_states(group, self._session.run.config.evaluation.split, episodes)
        spaces: Spaces = group.call("spaces").wait()[0]
        return spaces

    def _group(self, name: str, envs: int) -> WorkerGroup:
        if name not in self._groups:
            self._groups[name] = self._session.simulation(name, envs, stages=1)
        return self._groups[name]

    def _visit(
        self, group: WorkerGroup, split: str, episodes: int, frames: bool = False
    ) -> list[Any]:
        runtime = self._session.runtime
        room = stream_channel(group.size)
        observations = runtime.channel(f"{group.name}.observations", room)
        actions = runtime.channel(f"{group.name}.actions", room)
        visited = group.call("evaluate", split, episodes, observations, actions, frames)
        answered = self._rollout.call("answer", stage_keys(group.size, 1), observations, actions)
        parts = visited.wait()
        answered.wait()
        return parts
