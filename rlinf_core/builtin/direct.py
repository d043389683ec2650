"""The ``direct`` rollout engine: calls ``Policy.act`` in this process.

It serves every embodied policy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlinf_core.builtin.config import DirectConfig
from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import Draws
from rlinf_core.errors import RequestError, WeightSyncError
from rlinf_core.protocols.policy import Act, Mode
from rlinf_core.transport.weights import Piece, WeightStream, load_into


class DirectEngine:
    """Holds its own copy of the policy on one device.

    Args:
        config: its options.
        device: torch name of the device.
    """

    loads_parts = True

    def __init__(self, config: DirectConfig, device: str) -> None:
        self._config, self._device = config, device
        self._policy: Any = None
        self._torn: int | None = None  # version of which only a part was loaded
        self.version = -1

    def build(self, make_policy: Callable[[], nn.Module]) -> None:
        """Make the policy on the device, for inference."""
        self._policy = make_policy().to(self._device).eval().requires_grad_(False)

    @torch.inference_mode()
    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Act on N rows; tensors come back on the CPU, where simulators are.

        Raises:
            WeightSyncError: the last update broke off while it was loaded.
        """
        if self._torn is not None:
            raise WeightSyncError(
                f"an update to weights of version {self._torn} broke off, so the engine holds "
                "parts of two versions; load a whole one"
            )
        size = self._config.batch_size or len(obs)
        if size >= len(obs):
            return _to_cpu(self._policy.act(obs.to(self._device), draws, mode))
        acts = []
        for start in range(0, len(obs), size):
            rows = slice(start, start + size)
            part = None if draws is None else draws.rows(rows)
            acts.append(_to_cpu(self._policy.act(obs.rows(rows).to(self._device), part, mode)))
        return Act(
            actions=_cat([a.actions for a in acts]),
            logp=_cat([a.logp for a in acts]),
            value=_cat([a.value for a in acts]),
            replay=None
            if acts[0].replay is None
            else Batch.cat([a.replay for a in acts if a.replay]),
        )

    def generate(self, requests: Sequence[Any]) -> AsyncIterator[Any]:
        """Refuse: this engine acts; text comes from engines with the capability GENERATE."""
        raise RequestError("the rollout engine 'direct' does not generate text; choose another")

    def load(self, stream: WeightStream, version: int) -> None:
        """Replace all weights, or those that changed since the version that this engine holds.

        Where the stream breaks off on the way, ``version`` is -1 and :meth:`act` refuses until a
        whole one was loaded; see :func:`rlinf_core.transport.weights.load_into`.
        """
        header = stream.header
        if header.base is not None and header.base != self.version:
            raise WeightSyncError(
                f"weights of version {version} leave out what did not change since version "
                f"{header.base}; the engine holds version {self.version} and needs all of them"
            )
        load_into(self._policy, WeightStream(header, self._tearing(stream)))
        self.version, self._torn = version, None

    def _tearing(self, stream: WeightStream) -> Iterator[Piece]:
        """Yield what is loaded; from the first piece on, weights are of two versions."""
        for piece in stream.pieces():
            self.version, self._torn = -1, stream.header.version
            yield piece

    def sleep(self) -> None:
        """Move the policy to host memory."""
        self._policy.to("cpu")

    def wake(self) -> None:
        """Move it back."""
        self._policy.to(self._device)

    def abort(self, ids: Sequence[str]) -> None:
        """Nothing to stop: ``act`` returns when it is done."""

    def close(self) -> None:
        """Drop the policy."""
        self._policy = None


def _to_cpu(act: Act) -> Act:
    def move(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.cpu()

    replay = None if act.replay is None else act.replay.to("cpu")
    return Act(move(act.actions), move(act.logp), move(act.value), replay)


def _cat(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
