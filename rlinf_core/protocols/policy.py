"""Policy: a model that acts and that can be trained on what it did.

The target of a model component is called as ``target(config, spaces, chunk)`` and returns a
``torch.nn.Module`` with these methods. Initial weights must depend only on torch's global random
state, which the caller seeds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from rlinf_core.data.batch import Batch
    from rlinf_core.data.draws import Draws


class Mode(enum.Enum):
    """How a policy is asked to act."""

    SAMPLE = "sample"
    """Draw from the action distribution."""
    GREEDY = "greedy"
    """Take its mode; no random number is used."""
    VALUE = "value"
    """Only the state value is wanted; ``Act.actions`` may be None."""


class LogprobLevel(enum.Enum):
    """How finely a policy states log-probabilities (RLinf-VLA, arXiv 2510.06710, section 4)."""

    TOKEN = "token"
    """One per action token or dimension: [B, C, A]."""
    ACTION = "action"
    """One per action of a chunk, summed over A: [B, C]."""
    CHUNK = "chunk"
    """One per chunk, summed over C and A: [B]."""


@dataclass(frozen=True)
class Act:
    """What a policy did for N rows.

    Attributes:
        actions: float32 [N, C, A] in the simulator's units, or None in mode VALUE.
        logp: [N, C, A], [N, C] or [N] as the policy's ``logprob_level`` says; None in mode VALUE.
        value: [N] float32, or None where the model has no critic.
        replay: what ``evaluate`` needs to score exactly these actions again; N rows.
    """

    actions: Tensor | None
    logp: Tensor | None
    value: Tensor | None
    replay: Batch | None


@dataclass(frozen=True)
class Eval:
    """Scores of recorded actions under the current weights, with gradients.

    Attributes:
        logp: as in :class:`Act`, rows B.
        entropy: same shape as ``logp``, or None where the model has none.
        value: [B] or None.
    """

    logp: Tensor
    entropy: Tensor | None
    value: Tensor | None


class Policy(Protocol):
    """A ``torch.nn.Module`` that acts and can be evaluated."""

    logprob_level: LogprobLevel

    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows.

        All randomness comes from ``draws`` (None unless ``mode`` is SAMPLE), so that a row's
        numbers do not depend on who shares its batch. Called without gradients.
        """
        ...

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded actions. Where weights and shapes are those of ``act``, logp is equal."""
        ...

    def observe(self, obs: Batch, valid: Tensor, reduce: Callable[[Tensor], Tensor]) -> None:
        """Take observations of one finished iteration into statistics that the policy keeps.

        Args:
            obs: the ``obs`` entry of the trajectories, [T, N, ...].
            valid: bool [T, N].
            reduce: sums a tensor over ranks, so that statistics are global; called equally often
                on every rank.

        Statistics are buffers: frozen while an iteration runs and versioned with the weights.
        """
        ...

    def lora_targets(self) -> tuple[str, ...]:
        """Return the names of the modules that low-rank adapters attach to; may be empty."""
        ...

    def shards(self) -> tuple[str, ...]:
        """Return the names of the modules that a sharding backend wraps, one unit each."""
        ...
