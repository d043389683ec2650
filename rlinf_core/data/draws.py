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
        self._shared: _Shared | None = None
        self._place: npt.NDArray[np.int64] | None = None  # of each row in ``_shared``

    def __len__(self) -> int:
        return len(self._ids)

    def rows(self, index: slice) -> Draws:
        """Return the streams of some rows, at the same point; their numbers stay what they are."""
        part = object.__new__(Draws)
        part._key, part._calls = self._key, self._calls
        part._ids, part._steps = self._ids[index], self._steps[index]
        part._shared = self._shared
        part._place = None if self._place is None else self._place[index]
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
        call = self._calls
        self._calls += 1
        if self._shared is None or width > _WIDEST:
            return _uniform(self._key, self._ids, self._steps, call, width)
        return self._shared.uniform(call, width)[self._place]


class DrawsAhead:
    """Hands out :class:`Draws` for one step after another, equal to making each by itself.

    However few rows there are, the generator takes a hundred calls of NumPy. So where they are few,
    the numbers of many steps are computed together, when those of the first are asked for.

    Args:
        seed: the run's seed.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._ids: list[int] = []
        self._steps = range(0)
        self._shared: _Shared | None = None

    def at(self, ids: Sequence[int], step: int) -> Draws:
        """Return the streams of environments ``ids`` at ``step``."""
        made = Draws(self._seed, ids, [step] * len(ids))
        count = len(made)
        if 2 * count > _TOGETHER:
            return made
        if step not in self._steps or self._ids != list(ids):
            self._ids, self._steps = list(ids), range(step, step + _TOGETHER // max(count, 1))
            together = np.repeat(np.arange(step, self._steps.stop, dtype=np.uint64), count)
            everyone = np.tile(made._ids, (len(self._steps), 1))
            self._shared = _Shared(made._key, everyone, together[:, None])
        made._shared = self._shared
        made._place = np.arange(count) + (step - self._steps.start) * count
        return made


_TOGETHER = 256  # rows that are computed at once: beyond, their own work is what they cost
_WIDEST = 64  # numbers a row and call that are kept for later steps


class _Shared:
    """The numbers of many rows, by call and width, computed when they are first asked for."""

    def __init__(self, key: tuple[int, int], ids: Words, steps: Words) -> None:
        self._stream = key, ids, steps
        self._made: dict[tuple[int, int], npt.NDArray[np.float64]] = {}

    def uniform(self, call: int, width: int) -> npt.NDArray[np.float64]:
        if (call, width) not in self._made:
            self._made[call, width] = _uniform(*self._stream, call, width)
        return self._made[call, width]


def _uniform(
    key: tuple[int, int], ids: Words, steps: Words, call: int, width: int
) -> npt.NDArray[np.float64]:
    """Return [rows, width] in (0, 1); ``ids`` and ``steps`` are [rows, 1]."""
    blocks = np.arange((width + 1) // 2, dtype=np.uint64)[None, :]
    zero = np.zeros((len(ids), blocks.shape[1]), dtype=np.uint64)
    # counter words: environment id, step (low), step (high) and call, block of this call
    counter = (
        zero + (ids & _LOW),
        zero + (steps & _LOW),
        zero + ((steps >> _SHIFT) << np.uint64(16)) + np.uint64(call),
        zero + blocks,
    )
    w0, w1, w2, w3 = philox4x32(counter, key)
    bits = np.stack([(w0 << _SHIFT) | w1, (w2 << _SHIFT) | w3], axis=-1)  # two per block
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return uniform.reshape(len(ids), 2 * blocks.shape[1])[:, :width]


def stream_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and their number, for torch generators."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
