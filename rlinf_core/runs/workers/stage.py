"""Stage: one simulator of a worker: whose turn it is in which episode, and what it last showed.

Which initial state an episode starts from, when environments are reset, and what is refused from a
simulator that breaks its contract stand here; who asks for steps stands in ``simulation.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import stream_seed
from rlinf_core.data.episode import EpisodeMeter, ends
from rlinf_core.data.outcomes import Episode
from rlinf_core.errors import SimulatorError
from rlinf_core.protocols.simulator import Autoreset, Simulator, StateId, Step


class Stage:
    """One simulator, whose turn it is in which episode, and what it last showed."""

    def __init__(self, simulator: Simulator, seed: int, group_size: int) -> None:
        self.simulator = simulator
        self._ids = simulator.slots.ids
        self._seed, self._group_size = seed, group_size
        if group_size > 1:
            self.require_choice()
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

    def require_choice(self) -> None:
        """Refuse a simulator that starts episodes where it likes."""
        if self.simulator.autoreset is not Autoreset.DISABLED:
            raise SimulatorError(
                f"{type(self.simulator).__name__} resets by itself ({self.simulator.autoreset}); "
                "starting from chosen states needs a simulator whose autoreset is DISABLED"
            )

    def assign(self, states: Sequence[StateId]) -> None:
        """Prepare an evaluation: deal states to environments and start the first ones."""
        self.require_choice()
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
        executed = step.valid.any(dim=1)  # [n]
        idle = self._active & ~executed  # [n]
        if bool(idle.any()):
            rows = idle.nonzero().squeeze(-1).tolist()
            raise SimulatorError(
                f"environments {[self._ids[row] for row in rows]} executed no step although their "
                "episodes had not ended"
            )
        finished = self._meter.add(
            step.reward, step.terminated, step.truncated, step.success, step.valid
        )
        ended = ends(step.terminated, step.truncated, step.valid)  # [n]
        self._obs = step.obs
        self._touched |= executed
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
        """End every episode of a group with the rollout, and begin those of the next one."""
        if self._group_size > 1:
            self._episode = [number + 1 for number in self._episode]
            self._reset(torch.ones(len(self._ids), dtype=torch.bool))

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

    def remember(self, whole: bool) -> dict[str, Any]:
        """Return what :meth:`go_back` takes, which nothing here will change."""
        under_way = whole and self._obs is not None
        state = copy.deepcopy(self.state_dict()) if under_way else None
        return {"episodes": list(self._episode), "state": state}

    def go_back(self, remembered: Mapping[str, Any], skip: bool) -> None:
        """Go on from :meth:`remember`; where no episode was remembered, each begins anew."""
        self._episode = [number + skip for number in remembered["episodes"]]
        self._obs = None
        if remembered["state"] is not None and not skip:
            self.load_state_dict(copy.deepcopy(remembered["state"]))

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
