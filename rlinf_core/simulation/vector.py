"""A Gymnasium 1.x vector environment as a ``Simulator``, whatever its autoreset mode.

A vector environment always steps all of its environments, so one whose episode has ended cannot
wait: it plays on behind the scenes ("parked") and nothing of that shows. Three modes become two:

=========  =========  ==========================================================================
Gymnasium  here       what is done about it
=========  =========  ==========================================================================
DISABLED   DISABLED   parked environments are reset before the next step, which Gymnasium demands
NEXT_STEP  DISABLED   the step that only resets is hidden with the rest of what a parked one does
SAME_STEP  SAME_STEP  the last observation is in ``final_obs``; the next episode starts from a state
                      that the simulator draws from the run's seed
=========  =========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym
from gymnasium.error import Error as GymnasiumError
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.errors import SimulatorError, did_you_mean
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, Spaces, StateId, Step
from rlinf_core.simulation.mapping import (
    Act,
    Arrays,
    Look,
    act,
    as_array,
    copy_rows,
    filled,
    flags_of,
    look,
    map_arrays,
    rows_equal,
)
from rlinf_core.simulation.states import StateRange, state_seed


def from_vector_env(
    make_env: Callable[[], VectorEnv[Any, Any, Any]],
    slots: EnvSlots,
    *,
    states: Mapping[str, int],
    observation: tuple[gym.Dict, Look] | None = None,
    action: tuple[gym.Box, Act] | None = None,
    success: str = "success",
    seed_bits: int = 64,
) -> VectorSimulator:
    """Make a simulator of a vector environment.

    Args:
        make_env: makes it, with as many environments as ``slots`` has ids. Its metadata declare
            ``autoreset_mode``; its ``reset`` honours ``options={"reset_mask": ...}``, as those of
            ``SyncVectorEnv`` and ``AsyncVectorEnv`` do.
        slots: which environments of the run it holds.
        states: number of initial states by split; a state is a seed for ``reset``.
        observation: what one environment shows, and the function that gives the arrays of that
            space, batched, from the batched observation; by default :func:`.mapping.look`.
        action: what one environment takes, and the function that gives that from float32 [N, A];
            by default :func:`.mapping.act`.
        success: key of ``info`` that says whether the task counts as solved.
        seed_bits: how wide a seed the environments accept.

    Raises:
        SimulatorError: the environment does not declare a mode, has another number of
            environments, takes no seed per environment, or needs ``observation`` or ``action``.
    """
    env = make_env()
    try:
        shown = observation or look(env.single_observation_space)
        taken = action or act(env.single_action_space)
        return VectorSimulator(env, slots, states, shown, taken, success, seed_bits)
    except BaseException:
        env.close()
        raise


class VectorSimulator:
    """What :func:`from_vector_env` makes."""

    def __init__(
        self,
        env: Any,
        slots: EnvSlots,
        states: Mapping[str, int],
        observation: tuple[gym.Dict, Look],
        action: tuple[gym.Box, Act],
        success: str,
        seed_bits: int,
    ) -> None:
        self.slots, self._env = slots, env
        count = len(slots.ids)
        if env.num_envs != count:
            raise SimulatorError(f"{env} has {env.num_envs} environments; the run wants {count}")
        try:
            self._mode = AutoresetMode((env.metadata or {}).get("autoreset_mode"))
        except ValueError:
            raise SimulatorError(
                f"{env} does not say what happens when an episode ends; wanted "
                f"metadata['autoreset_mode'], one of {[str(mode) for mode in AutoresetMode]}"
            ) from None
        same = self._mode is AutoresetMode.SAME_STEP
        self.autoreset = Autoreset.SAME_STEP if same else Autoreset.DISABLED
        self.spaces = Spaces(observation[0], action[0])
        self._look, self._act = observation[1], action[1]
        self._splits = {split: StateRange(split, number) for split, number in states.items()}
        self._success, self._bits = success, seed_bits
        self._ended = np.ones(count, bool)  # nothing runs before its first reset
        self._stale = np.zeros(count, bool)  # ended in the eyes of the vector environment
        self._episodes = np.zeros(count, np.int64)  # drawn under SAME_STEP
        self._closed = False
        try:
            self._raw, _ = env.reset(seed=[self._draw(row) for row in range(count)])
        except (TypeError, GymnasiumError) as error:
            raise SimulatorError(
                f"{env} takes no list of seeds ({error}); wanted one that does, such as "
                "gym.make_vec(..., vectorization_mode='sync')"
            ) from None
        self._shown = map_arrays(self._look(self._raw), np.zeros_like)

    # --- the protocol ----------------------------------------------------------------------------

    def initial_states(self, split: str) -> Sequence[StateId]:
        """Return the virtual sequence of a split's states."""
        if split not in self._splits:
            raise SimulatorError(
                f"no split {split!r} of initial states; there are {sorted(self._splits)}."
                + did_you_mean(split, self._splits)
            )
        return self._splits[split]

    def reset(self, mask: Tensor, states: Sequence[StateId]) -> Batch:
        """Start new episodes where ``mask`` [N] is true; the others do not move."""
        chosen = mask.numpy()
        if chosen.dtype != bool or chosen.shape != self._ended.shape:
            raise SimulatorError(
                f"reset with a mask {mask.dtype} {list(mask.shape)}; wanted torch.bool "
                f"[{len(self._ended)}]"
            )
        if chosen.sum() != len(states):
            raise SimulatorError(
                f"reset of {chosen.sum()} environments with {len(states)} states; wanted one each"
            )
        if len(states):
            rows = chosen.nonzero()[0]
            seeds = {
                int(row): state_seed(state, self._bits)
                for row, state in zip(rows, states, strict=True)
            }
            self._restart(chosen, seeds)
        return self._batch(self._shown)

    def step(self, actions: Tensor) -> Step:
        """Execute a chunk, float32 [N, C, A]."""
        count, steps = len(self._ended), actions.shape[1] if actions.ndim == 3 else -1
        if tuple(actions.shape) != (count, steps, *self.spaces.action.shape):
            raise SimulatorError(
                f"step with actions of shape {list(actions.shape)}; wanted [{count}, C, "
                f"{self.spaces.action.shape[0]}]"
            )
        values = actions.detach().to("cpu", torch.float32).numpy()
        names = ("terminated", "truncated", "success", "valid")
        out = {name: np.zeros((count, steps), bool) for name in names}
        out["reward"] = np.zeros((count, steps), np.float32)
        before = self._ended.copy()
        for c in range(steps):
            active = ~self._ended
            if not active.any():
                break
            for name, column in self._advance(values[:, c], active).items():
                out[name][:, c] = np.where(active, column, 0)
            out["valid"][:, c] = active
            self._ended |= out["terminated"][:, c] | out["truncated"][:, c]
        final = None
        if self.autoreset is Autoreset.SAME_STEP:
            final = self._batch(self._shown)
            over = self._ended & ~before
            if over.any():
                self._restart(over, {row: self._draw(row) for row in over.nonzero()[0].tolist()})
        tensors = {name: torch.from_numpy(array) for name, array in out.items()}
        return Step(obs=self._batch(self._shown), final_obs=final, **tensors)

    def render(self) -> np.ndarray | None:
        """Return uint8 [N, H, W, 3], or None where the environment was made without rendering."""
        frames = self._env.render() if self._env.render_mode == "rgb_array" else None
        return None if frames is None else np.stack(frames)

    def state_dict(self) -> Mapping[str, Any]:
        """Raise: Gymnasium's environments cannot be saved in the middle of an episode."""
        raise SimulatorError(f"{self._env} cannot save running episodes (no capability RESTORE)")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise, as :meth:`state_dict`."""
        self.state_dict()

    def offload(self) -> None:
        """Do nothing."""

    def onload(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the vector environment; may be called twice."""
        if not self._closed:
            self._closed = True
            self._env.close()

    # --- within ----------------------------------------------------------------------------------

    def _advance(self, actions: np.ndarray, active: np.ndarray) -> dict[str, np.ndarray]:
        """Do one step of all; show what the active ones see and return their outcomes, each [N]."""
        if self._mode is AutoresetMode.DISABLED and self._stale.any():
            self._masked_reset(self._stale, {})
        space = self.spaces.action
        idle = np.clip(np.zeros(space.shape, np.float32), space.low, space.high)
        self._raw, reward, terminated, truncated, info = self._env.step(
            self._act(np.where(active[:, None], actions, idle))
        )
        terminated, truncated = as_array(terminated).astype(bool), as_array(truncated).astype(bool)
        self._stale = terminated | truncated
        solved = flags_of(info, self._success, len(active))
        seen = self._look(self._raw)
        copy_rows(self._shown, seen, active)
        if self._mode is AutoresetMode.SAME_STEP and self._stale.any():
            last = self._look(filled(self._raw, info["final_obs"], self._stale))
            copy_rows(self._shown, last, active & self._stale)
            ended = flags_of(info.get("final_info", {}), self._success, len(active))
            solved = np.where(self._stale, ended, solved)
        return {
            "reward": as_array(reward),
            "terminated": terminated,
            "truncated": truncated,
            "success": solved,
        }

    def _restart(self, mask: np.ndarray, seeds: Mapping[int, int]) -> None:
        self._masked_reset(mask, seeds)
        copy_rows(self._shown, self._look(self._raw), mask)
        self._ended &= ~mask

    def _masked_reset(self, mask: np.ndarray, seeds: Mapping[int, int]) -> None:
        before = map_arrays(self._look(self._raw), np.copy)
        self._raw, _ = self._env.reset(
            seed=[seeds.get(row) for row in range(len(mask))],
            options={"reset_mask": mask.copy()},
        )
        self._stale = self._stale & ~mask
        if not rows_equal(before, self._look(self._raw), ~mask):
            raise SimulatorError(
                f"{self._env} reset more environments than options['reset_mask'] named; a "
                "simulator must leave the others alone"
            )

    def _draw(self, row: int) -> int:
        """Return the seed of the next episode that nobody chose, from the run's seed."""
        self._episodes[row] += 1
        split = f"drawn/{self.slots.seed}/{self.slots.ids[row]}"
        return state_seed(StateId(split, int(self._episodes[row])), self._bits)

    def _batch(self, arrays: Arrays) -> Batch:
        return Batch(
            map_arrays(arrays, lambda array: torch.from_numpy(array.copy())), len(self._ended)
        )
