"""EngineAdapter: one range of versions of one rollout engine, spoken to in its own words.

Chosen by the installed version from its ``EngineAdapterSpec``; its target is called as
``target(config)``. The verbs are a rollout engine's, asynchronous.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rlinf_core.transport.weights import WeightStream


class EngineAdapter(Protocol):
    """Speaks to one range of versions of an engine."""

    @staticmethod
    def probe() -> list[str]:
        """Return every way in which the installed engine differs from what this adapter expects."""
        ...

    async def start(self, model: str) -> None:
        """Start the engine with the model at a path."""
        ...

    def generate(self, requests: Sequence[Any]) -> AsyncIterator[Any]:
        """Yield each request's result when it is complete."""
        ...

    async def load(self, stream: WeightStream, version: int) -> None:
        """Replace all weights; raises WeightSyncError where they do not match."""
        ...

    async def sleep(self) -> None:
        """Free the device."""
        ...

    async def wake(self) -> None:
        """Undo :meth:`sleep`."""
        ...

    async def abort(self, ids: Sequence[str]) -> None:
        """Stop generating for these requests."""
        ...

    async def close(self) -> None:
        """End the engine and everything it started."""
        ...
