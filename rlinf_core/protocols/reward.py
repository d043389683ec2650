"""Reward: scores trajectories or answers that the simulator itself does not score.

The target of a reward component is called as ``target(config)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from rlinf_core.data.batch import Batch


class Reward(Protocol):
    """Scores B rows."""

    def __call__(self, rows: Batch) -> Tensor:
        """Return float32 [B], one score per row.

        Args:
            rows: for language models ``prompt``, ``answer`` and the sample's own columns; for
                robots a trajectory.
        """
        ...
