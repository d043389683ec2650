"""What an episode means, once: ends, bootstrapping, masks, success.

* Termination never bootstraps; truncation does, from the final observation.
* Steps after an end inside a chunk are not executed, earn nothing and are masked.
* Success is counted both ``once`` (at any step) and ``at_end`` (at the last executed step).

What is reported of episodes that ended stands in ``outcomes.py``, which needs no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf_core.data.outcomes import Episode
from rlinf_core.errors import BatchError


def ends(terminated: Tensor, truncated: Tensor, valid: Tensor) -> Tensor:
    """Return bool [N]: whether an episode ended within a chunk.

    Args:
        terminated: bool [N, C], as are ``truncated`` and ``valid``.
    """
    _same_shape(terminated=terminated, truncated=truncated, valid=valid)
    return ((terminated | truncated) & valid).any(dim=1)


def chunk_flags(terminated: Tensor, truncated: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N] each, of a whole chunk; termination wins."""
    _same_shape(terminated=terminated, truncated=truncated, valid=valid)
    terminal = (terminated & valid).any(dim=1)
    return terminal, (truncated & valid).any(dim=1) & ~terminal


def last_valid(flags: Tensor, valid: Tensor) -> Tensor:
    """Return ``flags`` [N, C] at each row's last valid step, [N]; false where none is valid."""
    _same_shape(flags=flags, valid=valid)
    position = (valid * torch.arange(1, valid.shape[1] + 1)).argmax(dim=1)  # [N]
    return flags.gather(1, position[:, None]).squeeze(1) & valid.any(dim=1)


def _same_shape(**tensors: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise BatchError(f"shapes {shapes}; wanted one shape [N, C] for all")


_COUNTED = ("length", "total", "once", "last")


class EpisodeMeter:
    """Follows N running episodes and hands out each one when it ends.

    Args:
        ids: environment ids, one per row.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)
        self._states = [""] * len(self._ids)
        self._length = torch.zeros(len(self._ids), dtype=torch.int64)  # [N]
        self._total = torch.zeros(len(self._ids), dtype=torch.float64)  # [N]
        self._once = torch.zeros(len(self._ids), dtype=torch.bool)  # [N]
        self._last = torch.zeros(len(self._ids), dtype=torch.bool)  # [N]

    def begin(self, mask: Tensor, states: Sequence[str]) -> None:
        """Start new episodes where ``mask`` [N] is true, one state each in order."""
        rows = mask.nonzero().squeeze(-1).tolist()
        for row, state in zip(rows, states, strict=True):
            self._states[row] = state
        self._length[mask] = 0
        self._total[mask] = 0.0
        self._once[mask] = False
        self._last[mask] = False

    def state_dict(self) -> dict[str, Any]:
        """Return everything, as tensors and plain data."""
        return {
            "states": list(self._states),
            **{name: getattr(self, f"_{name}").clone() for name in _COUNTED},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self._states = list(state["states"])
        for name in _COUNTED:
            setattr(self, f"_{name}", state[name])

    def add(
        self, reward: Tensor, terminated: Tensor, truncated: Tensor, success: Tensor, valid: Tensor
    ) -> list[Episode]:
        """Take one chunk, all [N, C]; return the episodes that ended in it, by row."""
        _same_shape(reward=reward, success=success, valid=valid)
        self._total += torch.where(valid, reward, 0.0).sum(dim=1)
        # Flags in NumPy, in the memory of the tensors: on N rows a call of PyTorch costs the more.
        executed, solved = valid.numpy(), (success & valid).numpy()  # [N, C] each
        once, last, length = self._once.numpy(), self._last.numpy(), self._length.numpy()
        ended = ends(terminated, truncated, valid).nonzero().squeeze(-1).tolist()
        for c in range(executed.shape[1]):
            now = executed[:, c]
            length += now
            once |= solved[:, c]
            np.copyto(last, solved[:, c], where=now)
        return [
            Episode(
                env=self._ids[row],
                state=self._states[row],
                length=int(self._length[row]),
                total=float(self._total[row]),
                success_once=bool(self._once[row]),
                success_at_end=bool(self._last[row]),
            )
            for row in ended
        ]
