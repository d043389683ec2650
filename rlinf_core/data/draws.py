"""Random numbers by counter: a row's numbers depend on its own key and on nothing else.

A policy asks a :class:`Draws` for one row of numbers per environment. Each row is keyed by (run
seed, environment id, step), so batching, sharding, pipelining and resuming change no number, and
there is no generator state to save. The generator is Philox4x32-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", SC 2011, section 3.3), computed for all rows at once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

Words = npt.NDArray[np.uint64]


def philox4x32(counter: Sequence[Words], key: tuple[int, int], rounds: int = 10) -> list[Words]:
    """Return four words below 2^32 for each counter.

    Args:
        counter: four arrays of one shape, words below 2^32.
        key: two words below 2^32.
        rounds: 10, unless a test wants fewer.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = _M0 * c0, _M1 * c2  # 32 x 32 -> 64 bits
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


class Draws:
    """One stream of random numbers per row. Calls on one object give independent numbers.

    Args:
        seed: the run's seed.
        ids: environment id of each row.
        steps: step of each row within the run; a number that never repeats for an environment.
    """

    def __init__(self, seed: int, ids: Sequence[int], steps: Sequence[int]) -> None:
        if len(ids) != len(steps):
            raise ValueError(f"{len(ids)} ids and {len(steps)} steps; wanted one each per row")
        self._key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
        self._ids = np.asarray(ids, dtype=np.uint64)[:, None]
        self._steps = np.asarray(steps, dtype=np.uint64)[:, None]
        self._calls = 0

    def __len__(self) -> int:
        return len(self._ids)

    def rows(self, index: slice) -> Draws:
        """Return the streams of some rows, at the same point; their numbers stay what they are."""
        part = object.__new__(Draws)
        part._key, part._calls = self._key, self._calls
        part._ids, part._steps = self._ids[index], self._steps[index]
        return part

    def uniform(self, *shape: int) -> Tensor:
        """Return float64 [N, *shape], uniform in the open interval (0, 1)."""
        return torch.from_numpy(self._uniform(math.prod(shape)).reshape(len(self), *shape))

    def normal(self, *shape: int) -> Tensor:
        """Return float32 [N, *shape], standard normal (Box and Muller 1958)."""
        width = math.prod(shape)
        pairs = (width + 1) // 2
        u = self._uniform(2 * pairs)  # [N, 2 * pairs]
        radius = np.sqrt(-2.0 * np.log(u[:, :pairs]))
        angle = 2.0 * np.pi * u[:, pairs:]
        both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return torch.from_numpy(both[:, :width].astype(np.float32).reshape(len(self), *shape))

    def gumbel(self, *shape: int) -> Tensor:
        """Return float32 [N, *shape]; argmax(logits + gumbel) is a categorical sample."""
        return (-torch.log(-torch.log(self.uniform(*shape)))).float()

    def integers(self, high: int) -> Tensor:
        """Return int64 [N], uniform in [0, high)."""
        return (self.uniform() * high).long()

    def _uniform(self, width: int) -> npt.NDArray[np.float64]:
        blocks = np.arange((width + 1) // 2, dtype=np.uint64)[None, :]
        zero = np.zeros((len(self), blocks.shape[1]), dtype=np.uint64)
        # counter words: environment id, step (low), step (high) and call, block of this call
        counter = (
            zero + (self._ids & _LOW),
            zero + (self._steps & _LOW),
            zero + ((self._steps >> _SHIFT) << np.uint64(16)) + np.uint64(self._calls),
            zero + blocks,
        )
        self._calls += 1
        w0, w1, w2, w3 = philox4x32(counter, self._key)
        bits = np.stack([(w0 << _SHIFT) | w1, (w2 << _SHIFT) | w3], axis=-1)  # two per block
        uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return uniform.reshape(len(self), -1)[:, :width]


def stream_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and their number, for torch generators."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
