"""What lies where in the memory that a simulator shares with its processes, and who has which row.

Also how an environment's saved episode becomes tensors for a checkpoint and arrays for a child.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym
from torch import Tensor

from rlinf_core.errors import SimulatorError
from rlinf_core.protocols.simulator import EnvSlots, Spaces
from rlinf_core.simulation.memory import Field

OUTCOMES = {
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "success": "bool",
    "valid": "bool",
}
"""What a step tells besides the observation, each [N, C]."""


def fields(slots: EnvSlots, spaces: Spaces, frame: tuple[int, int] | None) -> tuple[Field, ...]:
    """Lay out the shared memory: what goes in, what comes out, who has ended, what is seen."""
    count, steps = len(slots.ids), slots.chunk
    laid = [Field("actions", (count, steps, *spaces.action.shape), "float32")]
    laid += [Field(name, (count, steps), dtype) for name, dtype in OUTCOMES.items()]
    laid.append(Field("ended", (count,), "bool"))
    laid += _observation_fields(spaces.observation, "obs", count)
    if frame is not None:
        laid.append(Field("frames", (count, *frame, 3), "uint8"))
    return tuple(laid)


def _observation_fields(space: gym.Dict, prefix: str, count: int) -> Iterator[Field]:
    for key, part in space.spaces.items():
        name = f"{prefix}.{key}"
        if isinstance(part, gym.Dict):
            yield from _observation_fields(part, name, count)
        elif isinstance(part, gym.Box):
            yield Field(name, (count, *part.shape), str(part.dtype))
        elif name != "obs.task":
            raise SimulatorError(
                f"{name} has space {part}; wanted a Box, a Dict or the text 'task'"
            )


def shares(count: int, processes: int) -> list[range]:
    """Split rows 0 ... count - 1 into consecutive shares that differ by at most one row."""
    edges = [k * count // processes for k in range(processes + 1)]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def to_tensors(saved: Any) -> Any:
    """Turn what an environment saved into tensors and plain data, for a checkpoint."""
    if isinstance(saved, np.ndarray):
        return torch.from_numpy(saved.copy())
    if isinstance(saved, Mapping):
        return {key: to_tensors(value) for key, value in saved.items()}
    if isinstance(saved, list | tuple):
        return [to_tensors(value) for value in saved]
    return saved.item() if isinstance(saved, np.generic) else saved


def to_arrays(saved: Any) -> Any:
    """Undo :func:`to_tensors`; children know no tensors."""
    if isinstance(saved, Tensor):
        return saved.numpy()
    if isinstance(saved, Mapping):
        return {key: to_arrays(value) for key, value in saved.items()}
    return [to_arrays(value) for value in saved] if isinstance(saved, list) else saved
