"""Simulator: the world a policy acts in, vectorised over N environments.

The target of a simulator component is called as ``target(config, slots)`` with its validated
configuration and an :class:`EnvSlots`; it returns a :class:`Simulator`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from gymnasium import spaces
    from torch import Tensor

    from rlinf_core.data.batch import Batch


class Autoreset(enum.Enum):
    """What a simulator does by itself when an episode ends."""

    DISABLED = "disabled"
    """Nothing: the environment waits, executing no step, until it is reset by mask."""
    SAME_STEP = "same-step"
    """``step`` returns the new episode's first observation, and the old one's last in
    ``final_obs``."""


@dataclass(frozen=True, order=True)
class StateId:
    """Names one initial state: the same id always gives the same first observation."""

    split: str
    index: int


@dataclass(frozen=True)
class EnvSlots:
    """Which of a run's environments this simulator holds.

    Args:
        ids: run-wide environment ids, one per environment; their number is N.
        seed: the run's seed, for what a simulator draws by itself (SAME_STEP states).
        chunk: C, the number of actions in one call of ``step``.
    """

    ids: tuple[int, ...]
    seed: int
    chunk: int = 1


@dataclass(frozen=True)
class Spaces:
    """What one environment shows and takes, without the leading N.

    Args:
        observation: keys as in :class:`Step` ``.obs``; ``images`` is a nested dict by camera.
        action: one step's action, shape [A], with its bounds.
    """

    observation: spaces.Dict
    action: spaces.Box


@dataclass(frozen=True)
class Step:
    """The outcome of one chunk of C actions in N environments.

    Attributes:
        obs: what to act on next. A batch of N rows with any of ``state`` float32 [N, S],
            ``images`` {camera: uint8 [N, H, W, 3]}, ``task`` (N strings).
        final_obs: under SAME_STEP, the last observation of episodes that ended in this call; rows
            of other environments are undefined. None under DISABLED, where ``obs`` is that.
        reward: float32 [N, C], 0 where ``valid`` is false.
        terminated: bool [N, C], the task's own end (success, failure, a fall): never bootstraps.
        truncated: bool [N, C], an end from outside (a time limit): bootstraps from the final
            observation.
        success: bool [N, C], whether the task counts as solved at that step.
        valid: bool [N, C], false for steps after an episode's end, which were not executed.
    """

    obs: Batch
    final_obs: Batch | None
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    success: Tensor
    valid: Tensor


class Simulator(Protocol):
    """N environments of one task family behind one call.

    An implementation may assume that calls come one at a time. It raises
    :class:`rlinf_core.errors.SimulatorError` when it cannot go on.
    """

    slots: EnvSlots
    spaces: Spaces
    autoreset: Autoreset

    def initial_states(self, split: str) -> Sequence[StateId]:
        """Return the initial states of ``split`` ("train" or "test"), disjoint between splits.

        The sequence may be virtual (a range); only ``len`` and indexing are used.
        """
        ...

    def reset(self, mask: Tensor, states: Sequence[StateId]) -> Batch:
        """Start new episodes where ``mask`` is true and leave the others untouched.

        Args:
            mask: bool [N].
            states: one per true entry of ``mask``, in order.

        Returns:
            The observation of all N environments; rows where ``mask`` is false are as before.
        """
        ...

    def step(self, actions: Tensor) -> Step:
        """Execute a chunk, float32 [N, C, A], within the action space's bounds.

        An environment that ended and was not reset executes nothing: its ``valid`` is false.
        """
        ...

    def render(self) -> np.ndarray | None:
        """Return uint8 [N, H, W, 3], or None where this machine has no renderer."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Return tensors and plain data that restore every running episode (RESTORE only)."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`, bit for bit (RESTORE only)."""
        ...

    def offload(self) -> None:
        """Free the device that the simulation runs on; a no-op on the CPU."""
        ...

    def onload(self) -> None:
        """Undo :meth:`offload`."""
        ...

    def close(self) -> None:
        """End every process and free every resource; may be called twice."""
        ...
