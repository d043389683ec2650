"""TrainingBackend: turns gradients into new weights, on one device or many ranks.

The target of a training-backend component is called as ``target(config, device)`` with the torch
name of a device. The backend owns the loop over micro-batches, so that a pipeline-parallel one
can interleave them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rlinf_core.data.batch import Batch
    from rlinf_core.protocols.algorithm import Metrics
    from rlinf_core.protocols.policy import Eval, Policy
    from rlinf_core.transport.weights import WeightStream

    LossFunction = Callable[[Batch, Eval], tuple[Tensor, Metrics]]
    """``loss_fn(micro_batch, policy.evaluate(micro_batch["replay"]))``."""


class TrainingBackend(Protocol):
    """Owns the trained copy of a policy, its optimizer and its schedule."""

    policy: Policy

    def join(self, rank: int, size: int, total: Callable[[Tensor], Tensor]) -> None:
        """Become one of several ranks (capability DISTRIBUTED); called before :meth:`build`.

        Every rank then sees its own rows of a minibatch, maybe none, and losses that are divided
        by the counts of all, so that gradients are to be added up.

        Args:
            rank: of this worker.
            size: number of ranks.
            total: returns the sum of a tensor over all ranks, which all call in the same order; a
                backend may use collectives of its own instead.
        """
        ...

    def build(self, make_policy: Callable[[], nn.Module]) -> None:
        """Make the policy, move it to the device and make its optimizer.

        Args:
            make_policy: makes it on the CPU with its initial weights.
        """
        ...

    def update(self, microbatches: Sequence[Batch], loss_fn: LossFunction) -> Mapping[str, float]:
        """Make one optimizer step from micro-batches whose losses add up to the whole.

        Returns:
            Each metric as sum / count, plus ``grad_norm`` and ``learning_rate``.
        """
        ...

    def score(self, microbatches: Sequence[Batch]) -> list[Eval]:
        """Return ``policy.evaluate`` of each micro-batch under the weights of now, no gradients."""
        ...

    def advance(self) -> None:
        """Tell the schedule that an iteration is over."""
        ...

    def reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and schedule under ``folder`` (safetensors and JSON).

        The weights go to ``model.safetensors`` under their public names, so that evaluation reads
        them without this backend.
        """
        ...

    def load(self, folder: Path) -> None:
        """Read what :meth:`save` wrote; continues bit for bit on the same device kind."""
        ...

    def export(self) -> WeightStream:
        """Return the weights, each public name once, with a header to check them by."""
        ...

    def offload(self) -> None:
        """Move weights and optimizer off the device."""
        ...

    def onload(self) -> None:
        """Move them back."""
        ...
