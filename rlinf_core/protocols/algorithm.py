"""Algorithm: what an update maximises. Pure functions of batches; it keeps no state.

The target of an algorithm component is called as ``target(config)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from rlinf_core.data.batch import Batch
    from rlinf_core.protocols.policy import Eval

    Reduce = Callable[[Tensor], Tensor]
    """Sums a tensor over all ranks; the identity on one."""
    Metrics = Mapping[str, tuple[Tensor, Tensor]]
    """Name to (sum, count): added over micro-batches and ranks, then divided once."""


@dataclass(frozen=True)
class Needs:
    """What an algorithm needs of a rollout, beyond capabilities of components.

    Args:
        values: rollouts must carry state values, and values of final observations.
        group_size: this many consecutive rows share an initial state and are never split.
        reference_logp: rollouts must be scored by a frozen reference policy.
        proximal_logp: rollouts must be scored by the weights that an update starts from, as an
            entry ``proximal_logp``; they differ from those that acted where training is
            asynchronous.
    """

    values: bool = False
    group_size: int = 1
    reference_logp: bool = False
    proximal_logp: bool = False


@dataclass(frozen=True)
class Counts:
    """Global numbers of a minibatch, over all its micro-batches and all ranks.

    A micro-batch's loss divided by these is its share of the whole, so backends only add
    gradients and no number depends on how the minibatch was split.

    Attributes:
        steps: valid environment steps or tokens, scalar tensor.
        rows: rows with at least one valid step, scalar tensor.
        groups: groups of rows, scalar tensor.
    """

    steps: Tensor
    rows: Tensor
    groups: Tensor


class Algorithm(Protocol):
    """An objective and how its advantages come about."""

    needs: Needs

    def advantages(self, batch: Batch, reduce: Reduce) -> Batch:
        """Return the rollout with what the loss needs added (``advantage``, ``return``).

        Args:
            batch: a trajectory, leading dimensions [T, N]; see ``rlinf_core.data.trajectory``.
            reduce: sums over ranks, so that statistics are global.
        """
        ...

    def loss(self, minibatch: Batch, evaluation: Eval, counts: Counts) -> tuple[Tensor, Metrics]:
        """Return this micro-batch's share of the loss, a scalar, and its metrics.

        Args:
            minibatch: B rows of the flattened trajectory.
            evaluation: scores of those rows under the current weights.
            counts: global numbers of the whole minibatch.
        """
        ...

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Return whether to skip the rest of this iteration's updates (a target KL, say).

        Asked after every optimizer step with that step's metrics.
        """
        ...
