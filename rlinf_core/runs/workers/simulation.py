"""SimulationWorker: owns environments, steps them with actions that arrive, sends what they see.

Every message it sends is a batch of n rows, one per environment of a stage:

    obs, env                                 what to act on next, and whose it is
    reward, terminated, truncated, success, valid   [n, C], of the step before (not in the first)
    final_obs                                only where an episode was truncated in that step
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import stream_seed
from rlinf_core.data.episode import EpisodeMeter, ends
from rlinf_core.data.outcomes import Episode
from rlinf_core.data.tree import load_tree, save_tree
from rlinf_core.errors import RequestError, SimulatorError
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, Simulator, Spaces, StateId, Step
from rlinf_core.runs.layout import stage_ids
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
        """Return how many initial states a split has."""
        return len(self._stages[0].simulator.initial_states(split))

    # --- training --------------------------------------------------------------------------------

    def collect(self, steps: int, observations: Channel, actions: Channel) -> list[Episode]:
        """Step every environment ``steps`` times; return the episodes that ended."""
        finished: list[Episode] = []
        for key, stage in self._keyed():
            observations.put(stage.greeting(), key=key)
        for _ in range(steps):
            for key, stage in self._keyed():
                message, ended = stage.step(actions.get(key=key))
                observations.put(message, key=key)
                finished += ended
        for _, stage in self._keyed():
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
            stage.assign(mine[position :: len(self._stages)])
            if stage.active():
                observations.put(stage.message(), key=key)
                running.append((key, stage))
            else:
                observations.put(None, key=key)
        while running:
            if pictures is not None:
                pictures.take()
            for key, stage in list(running):
                message, ended = stage.step(actions.get(key=key))
                finished += ended
                if stage.active():
                    observations.put(message, key=key)
                else:
                    observations.put(None, key=key)
                    running.remove((key, stage))
        if pictures is None:
            return finished, None, ""
        pictures.take()
        return finished, pictures.stacked(), pictures.note

    def close(self) -> None:
        """Close every simulator."""
        for stage in self._stages:
            stage.simulator.close()

    def _keyed(self) -> list[tuple[tuple[int, int], Stage]]:
        return [((self.place.rank, number), stage) for number, stage in enumerate(self._stages)]


class Stage:
    """One simulator, whose turn it is in which episode, and what it last showed."""

    def __init__(self, simulator: Simulator, seed: int, group_size: int) -> None:
        self.simulator = simulator
        self._ids = simulator.slots.ids
        self._seed, self._group_size = seed, group_size
        if group_size > 1 and simulator.autoreset is not Autoreset.DISABLED:
            raise SimulatorError(
                f"{type(simulator).__name__} resets by itself ({simulator.autoreset}); a group "
                "starts from one chosen state, which needs a simulator whose autoreset is DISABLED"
            )
        self._episode = [0] * len(self._ids)
        self._train = simulator.initial_states("train")
        if len(self._train) == 0:
            raise SimulatorError("the split 'train' has no initial states; wanted at least one")
        self._queues: list[list[StateId]] | None = None  # evaluation: states left per environment
        self._active = torch.ones(len(self._ids), dtype=torch.bool)  # [n]
        self._meter = EpisodeMeter(self._ids)
        self._obs: Batch | None = None
        self._env = torch.tensor(self._ids)  # [n]
        self._touched = torch.zeros(len(self._ids), dtype=torch.bool)  # [n] stepped since reset

    # --- which state next ------------------------------------------------------------------------

    def _next_state(self, row: int) -> StateId | None:
        if self._queues is not None:
            return self._queues[row].pop(0) if self._queues[row] else None
        group = self._ids[row] // self._group_size
        chosen = stream_seed(self._seed, group, self._episode[row]) % len(self._train)
        return self._train[chosen]

    def assign(self, states: Sequence[StateId]) -> None:
        """Prepare an evaluation: deal states to environments and start the first ones."""
        if self.simulator.autoreset is not Autoreset.DISABLED:
            raise SimulatorError(
                f"{type(self.simulator).__name__} resets by itself ({self.simulator.autoreset}); "
                "visiting chosen states needs a simulator whose autoreset is DISABLED"
            )
        width = len(self._ids)
        self._queues = [list(states[row::width]) for row in range(width)]
        self._active = torch.zeros(width, dtype=torch.bool)
        self._reset(torch.ones(width, dtype=torch.bool))

    def active(self) -> bool:
        """Return whether any episode is under way."""
        return bool(self._active.any())

    # --- stepping --------------------------------------------------------------------------------

    def greeting(self) -> Batch:
        """Return the first message of a collection, starting episodes where there are none."""
        if self._obs is None:
            self._reset(torch.ones(len(self._ids), dtype=torch.bool))
        return self.message()

    def message(self) -> Batch:
        """Return what the environments show now."""
        assert self._obs is not None
        return Batch({"obs": self._obs, "env": self._env})

    def step(self, actions: Tensor) -> tuple[Batch, list[Episode]]:
        """Execute a chunk [n, C, A] and start new episodes where old ones ended."""
        step = self.simulator.step(actions)
        _check(step, actions)
        idle = (self._active & ~step.valid.any(dim=1)).nonzero().squeeze(-1).tolist()
        if idle:
            raise SimulatorError(
                f"environments {[self._ids[row] for row in idle]} executed no step although their "
                "episodes had not ended"
            )
        finished = self._meter.add(
            step.reward, step.terminated, step.truncated, step.success, step.valid
        )
        ended = ends(step.terminated, step.truncated, step.valid)  # [n]
        self._obs = step.obs
        self._touched |= step.valid.any(dim=1)
        entries: dict[str, Any] = {
            name: getattr(step, name)
            for name in ("reward", "terminated", "truncated", "success", "valid")
        }
        if bool((step.truncated & step.valid).any()):
            entries["final_obs"] = step.obs if step.final_obs is None else step.final_obs
        if self._group_size > 1:
            self._active &= ~ended  # they wait for the next rollout
        elif bool(ended.any()):
            for row in ended.nonzero().squeeze(-1).tolist():
                self._episode[row] += 1
            if self.simulator.autoreset is Autoreset.DISABLED:
                self._reset(ended)
            else:
                self._meter.begin(ended, [""] * int(ended.sum()))
                self._touched &= ~ended
        return self.message().with_entries(**entries), finished

    def collected(self) -> None:
        """End every episode of a group with the rollout, so that all begin the next one anew."""
        if self._group_size > 1:
            self._episode = [number + 1 for number in self._episode]
            self._obs = None

    def _reset(self, mask: Tensor) -> None:
        """Start the next episode of each masked environment, where there is one."""
        rows = mask.nonzero().squeeze(-1).tolist()
        states = [self._next_state(row) for row in rows]
        starts = torch.zeros_like(mask)
        starts[[row for row, state in zip(rows, states, strict=True) if state is not None]] = True
        self._active = (self._active & ~mask) | starts
        chosen = [state for state in states if state is not None]
        if chosen or self._obs is None:
            self._obs = _observed(self.simulator.reset(starts, chosen), "reset()", len(self._ids))
        self._meter.begin(starts, [f"{state.split}/{state.index}" for state in chosen])
        self._touched &= ~mask

    # --- checkpoints -----------------------------------------------------------------------------

    def restart(self) -> bool:
        """Abandon and restart the episodes that have taken a step."""
        under_way = self._touched.clone()
        if self._obs is None or not bool(under_way.any()):
            return False
        for row in under_way.nonzero().squeeze(-1).tolist():
            self._episode[row] += 1
        self._reset(under_way)
        return True

    def counters(self) -> dict[int, int]:
        """Return the number of the current episode of each environment."""
        return dict(zip(self._ids, self._episode, strict=True))

    def set_counters(self, counters: dict[int, int]) -> None:
        """Start over at these episodes."""
        self._episode = [counters.get(i, 0) for i in self._ids]  # 0: an environment that is new
        self._obs = None

    def state_dict(self) -> dict[str, Any]:
        """Return what running episodes need to go on."""
        assert self._obs is not None
        return {
            "ids": list(self._ids),
            "simulator": self.simulator.state_dict(),
            "meter": self._meter.state_dict(),
            "obs": self._obs.to_dict(),
            "touched": self._touched,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.simulator.load_state_dict(state["simulator"])
        self._meter.load_state_dict(state["meter"])
        self._obs = Batch(state["obs"])
        self._touched = state["touched"]


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


_OUTCOME = {
    "reward": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "success": torch.bool,
    "valid": torch.bool,
}


def _check(step: Step, actions: Tensor) -> None:
    """Refuse a step that breaks the contract, before it spreads."""
    if not isinstance(step, Step):
        raise SimulatorError(f"step() gave a {type(step).__name__}; wanted a Step")
    for name, dtype in _OUTCOME.items():
        found = getattr(step, name)
        if not isinstance(found, Tensor) or found.dtype != dtype:
            kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
            raise SimulatorError(f"step().{name} is {kind}; wanted {dtype}")
        if found.shape != actions.shape[:2]:
            raise SimulatorError(
                f"step().{name} has shape {list(found.shape)}; wanted [N, C] = "
                f"{list(actions.shape[:2])}"
            )
    _observed(step.obs, "step().obs", len(actions))


def _observed(obs: Batch, what: str, rows: int) -> Batch:
    if not isinstance(obs, Batch) or len(obs) != rows:
        found = f"{len(obs)} rows" if isinstance(obs, Batch) else f"a {type(obs).__name__}"
        raise SimulatorError(f"{what} gave {found}; wanted a Batch of {rows} rows")
    return obs
