"""RolloutEngine: runs a policy to act or to generate, with weights that it is sent.

The target of a rollout-engine component is called as ``target(config, device)``. Embodied policies
use :meth:`act`; engines with the capability GENERATE answer :meth:`generate`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from rlinf_core.data.batch import Batch
    from rlinf_core.data.draws import Draws
    from rlinf_core.protocols.policy import Act, Mode
    from rlinf_core.transport.weights import WeightStream


class RolloutEngine(Protocol):
    """Holds one copy of a policy for inference, or one rank's part of it.

    Two things are optional. With ``loads_parts = True`` an engine says that its :meth:`load` takes
    streams that leave out what did not change. With ``wants(header)``, which returns a
    :class:`rlinf_core.api.Part` for some public names, it says which part of these tensors it
    holds, and gets no more; all others it gets whole.
    """

    version: int
    """Version of the weights it holds; -1 before the first load."""

    def build(self, make_policy: Callable[[], nn.Module]) -> None:
        """Make the policy on the device; its weights are undefined until :meth:`load`."""
        ...

    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Act on N rows, in sub-batches where the configuration says so; CPU tensors out."""
        ...

    def generate(self, requests: Sequence[Any]) -> AsyncIterator[Any]:
        """Generate text for requests and yield each result when it is complete."""
        ...

    def load(self, stream: WeightStream, version: int) -> None:
        """Replace all weights; or, with ``loads_parts``, those that the header names.

        Raises:
            WeightSyncError: a parameter is missing, unknown, of another shape or dtype, and nothing
                changed; or the stream broke off, and the engine refuses to act until it has loaded
                a whole one.
        """
        ...

    def sleep(self) -> None:
        """Free the device."""
        ...

    def wake(self) -> None:
        """Undo :meth:`sleep`; weights are those of before, or ``version`` is -1."""
        ...

    def abort(self, ids: Sequence[str]) -> None:
        """Stop generating for these requests."""
        ...

    def close(self) -> None:
        """Free everything; may be called twice."""
        ...
