"""Checksums of tensors, wherever they lie: on a GPU they are computed there.

Cryptographic sums take seconds per gigabyte; this one costs about one reading of the memory. It
finds torn, missing and exchanged memory; it is no defence against a person who means harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_WORDS = 64  # of 8 bytes, in a row
_ROW = 8 * _WORDS
_WRAP = 1 << 64
_FACTOR = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: odd, with bits of all weights


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """Return 64 bits that depend on the bytes of tensors and their order, not on dtypes or shapes.

    Of each tensor, rows of 512 bytes are added up as integers of 64 bits, and the sums are added
    with odd weights that grow from row to row; all modulo 2^64.
    """
    if not tensors:
        return combine(())
    return combine(torch.stack([_digest(tensor) for tensor in tensors]).tolist())


def combine(numbers: Iterable[int]) -> int:
    """Return 64 bits that depend on numbers and their order."""
    total = 0
    for number in numbers:
        total = (total * _FACTOR + number + 1) % _WRAP
    return total


def _digest(tensor: Tensor) -> Tensor:
    """Return the sum of one tensor, [] int64."""
    data = _bytes(tensor)
    whole = data.numel() // _ROW * _ROW
    rows = data[:whole].view(torch.int64).view(-1, _WORDS).sum(dim=1)  # [rows]
    total = (rows * _weights(len(rows), data.device)).sum()
    if whole < data.numel():
        rest = torch.zeros(_ROW, dtype=torch.uint8, device=data.device)
        rest[: data.numel() - whole] = data[whole:]
        total = total + rest.view(torch.int64).sum() * (2 * len(rows) + 1) * _SIGNED
    return total


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors of one size have the same bytes: NaN is itself, and -0 is not 0."""
    mine, its = _bytes(one), _bytes(other)
    whole = mine.numel() // 8 * 8  # words are compared many times as fast as bytes
    words = torch.equal(mine[:whole].view(torch.int64), its[:whole].view(torch.int64))
    return words and torch.equal(mine[whole:], its[whole:])


def _weights(rows: int, device: torch.device) -> Tensor:
    """Return the weights of so many rows, int64 [rows]; kept, for most tensors need the same."""
    kept = _kept.get(device)
    if kept is None or len(kept) < rows:
        kept = _kept[device] = torch.arange(1, 2 * rows + 1, 2, device=device) * _SIGNED
    return kept[:rows]


_kept: dict[torch.device, Tensor] = {}  # 1/64 of the largest tensor


def _bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's memory, uint8 [bytes], copied where it could not be read as words."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if data.storage_offset() % 8 or (data.device.type == "cpu" and data.data_ptr() % 8):
        return data.clone()
    return data


_SIGNED = _FACTOR - _WRAP  # the same factor, as an integer that fits int64
