"""SimulationWorker: owns environments, steps them with actions that arrive, sends what they see.

Every message it sends is a batch of n rows, one per environment of a stage:

    obs, env                                 what to act on next, and whose it is
    reward, terminated, truncated, success, valid   [n, C], of the step before (not in the first)
    final_obs                                only where an episode was truncated in that step
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.data.outcomes import Episode
from rlinf_core.data.tree import load_tree, save_tree
from rlinf_core.errors import RequestError, SimulatorError
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.simulator import EnvSlots, Spaces
from rlinf_core.runs.layout import stage_ids
from rlinf_core.runs.workers.stage import Stage
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.specs import ComponentRef


class SimulationWorker(Worker):
    """Collects rollouts and evaluates, in lockstep with rollout workers through two channels.

    Args:
        simulator: what to simulate with.
        config: its validated configuration.
        envs: number of environments of the whole group.
        stages: number of pipeline stages; each has its own simulator.
        chunk: actions per step.
        seed: the run's seed; decides which initial state each episode starts from.
        group_size: this many consecutive environments start each rollout from one state; with
            more than 1, an environment plays one episode per rollout and waits after its end.
    """

    def __init__(
        self,
        place: Place,
        simulator: ComponentRef,
        config: Any,
        envs: int,
        stages: int,
        chunk: int,
        seed: int,
        group_size: int = 1,
    ) -> None:
        super().__init__(place)
        make = resolve_ref(simulator)
        ids = stage_ids(envs, place.size, place.rank, stages)
        self._stages: list[Stage] = []
        try:
            for stage in ids:
                sim = make(config, EnvSlots(ids=stage, seed=seed, chunk=chunk))
                self._stages.append(Stage(sim, seed, group_size))
        except BaseException:
            self.close()
            raise

    def spaces(self) -> Spaces:
        """Return what one environment shows and takes."""
        return self._stages[0].simulator.spaces

    def count_states(self, split: str) -> int:
        """Return how many initial states a split has, to be visited one by one.

        Raises:
            SimulatorError: there is no such split, or the simulator cannot be sent to a state.
        """
        for stage in self._stages:
            stage.require_choice()
        return len(self._stages[0].simulator.initial_states(split))

    # --- training --------------------------------------------------------------------------------

    def collect(self, steps: int, observations: Channel, actions: Channel) -> list[Episode]:
        """Step every environment ``steps`` times; return the episodes that ended."""
        finished: list[Episode] = []
        for key, stage in self._keyed():
            with self.lease():
                greeting = stage.greeting()
            observations.put(greeting, key=key)
        for _ in range(steps):
            for key, stage in self._keyed():
                message, ended = self._step(stage, actions.get(key=key))
                observations.put(message, key=key)
                finished += ended
        for _, stage in self._keyed():
            with self.lease():  # others learn meanwhile: the next rollout's resets cost no time
                stage.collected()
        return finished

    def restart(self) -> bool:
        """Abandon episodes that are under way; return whether there were any.

        Called at a checkpoint when the simulator cannot restore its state, so that a run that goes
        on and one that resumes there see the same.
        """
        return any([stage.restart() for stage in self._stages])  # noqa: C419 (every one, not the first)

    def counters(self) -> dict[str, int]:
        """Return the number of the current episode of each environment, by id."""
        return {str(i): n for stage in self._stages for i, n in stage.counters().items()}

    def set_counters(self, counters: dict[str, int]) -> None:
        """Continue from :meth:`counters`."""
        for stage in self._stages:
            stage.set_counters({int(i): n for i, n in counters.items()})

    def remember(self, whole: bool) -> list[Any]:
        """Return what :meth:`go_back` takes; with ``whole`` also episodes under way (RESTORE)."""
        return [stage.remember(whole) for stage in self._stages]

    def go_back(self, remembered: list[Any], skip: bool = False) -> None:
        """Do as if nothing had happened since :meth:`remember`, perhaps of another worker.

        Args:
            remembered: what that returned.
            skip: begin the episodes that followed instead.
        """
        for stage, state in zip(self._stages, remembered, strict=True):
            stage.go_back(state, skip)

    def save(self, folder: str) -> None:
        """Write everything that running episodes need to go on (capability RESTORE)."""
        stages = [stage.state_dict() for stage in self._stages]
        save_tree(Path(folder), f"rank-{self.place.rank}", stages)

    def load(self, folder: str) -> bool:
        """Continue from :meth:`save`; return False, changing nothing, if it was laid out else."""
        name = f"rank-{self.place.rank}"
        if not (Path(folder) / f"{name}.json").exists():
            return False
        stages = load_tree(Path(folder), name)
        mine = [list(stage.simulator.slots.ids) for stage in self._stages]
        if [saved["ids"] for saved in stages] != mine:
            return False
        for stage, saved in zip(self._stages, stages, strict=True):
            stage.load_state_dict(saved)
        return True

    # --- evaluation ------------------------------------------------------------------------------

    def evaluate(
        self, split: str, episodes: int, observations: Channel, actions: Channel, frames: bool
    ) -> tuple[list[Episode], npt.NDArray[np.uint8] | None, str]:
        """Run one episode from each of the first ``episodes`` states of ``split``.

        Returns:
            The episodes; with ``frames`` what they looked like, uint8 [steps, n, H, W, 3] over all
            stages; and why nothing could be rendered, or "".
        """
        states = self._stages[0].simulator.initial_states(split)
        if episodes > len(states):
            raise RequestError(
                f"{episodes} evaluation episodes, but split {split!r} has {len(states)} initial "
                f"states, each visited once; ask for at most {len(states)}"
            )
        mine = [states[i] for i in range(self.place.rank, episodes, self.place.size)]
        finished: list[Episode] = []
        pictures = _Pictures(self._stages) if frames else None
        running = []
        for position, (key, stage) in enumerate(self._keyed()):
            with self.lease():
                stage.assign(mine[position :: len(self._stages)])
            if stage.active():
                observations.put(stage.message(), key=key)
                running.append((key, stage))
            else:
                observations.put(None, key=key)
        while running:
            if pictures is not None:
                with self.lease():
                    pictures.take()
            for key, stage in list(running):
                message, ended = self._step(stage, actions.get(key=key))
                finished += ended
                if stage.active():
                    observations.put(message, key=key)
                else:
                    observations.put(None, key=key)
                    running.remove((key, stage))
        if pictures is None:
            return finished, None, ""
        with self.lease():
            pictures.take()
        return finished, pictures.stacked(), pictures.note

    def offload(self) -> None:
        """Free the device for whoever takes turns with this worker."""
        for stage in self._stages:
            stage.simulator.offload()

    def onload(self) -> None:
        """Come back to it."""
        for stage in self._stages:
            stage.simulator.onload()

    def close(self) -> None:
        """Close every simulator."""
        for stage in self._stages:
            stage.simulator.close()

    def _step(self, stage: Stage, actions: Tensor) -> tuple[Batch, list[Episode]]:
        with self.lease():
            return stage.step(actions)

    def _keyed(self) -> list[tuple[tuple[int, int], Stage]]:
        return [((self.place.rank, number), stage) for number, stage in enumerate(self._stages)]


class _Pictures:
    """What a worker's environments look like, step by step, until nothing more can be drawn."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._simulators = [stage.simulator for stage in stages]
        self._taken: list[npt.NDArray[np.uint8]] = []
        self.note = ""

    def take(self) -> None:
        """Take one picture, uint8 [n, H, W, 3], of all stages."""
        if self.note:
            return
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            shown = [simulator.render() for simulator in self._simulators]
        parts = [part for part in shown if part is not None]
        for part in parts:
            if part.ndim != 4 or part.shape[3] != 3 or part.dtype != np.uint8:
                raise SimulatorError(
                    f"render() gave {part.dtype}{list(part.shape)}; wanted uint8[N, H, W, 3]"
                )
        if len(parts) == len(shown):
            self._taken.append(np.concatenate(parts))
        else:
            self.note = str(said[0].message) if said else "the simulator drew nothing"

    def stacked(self) -> npt.NDArray[np.uint8] | None:
        """Return all of them, uint8 [steps, n, H, W, 3]; None if any is missing."""
        return np.stack(self._taken) if self._taken and not self.note else None
