"""Shared memory that has no name: nothing is left in /dev/shm, whoever is killed.

The owner makes a :class:`SharedArrays` from fields and hands its ``fd`` to a child, which maps the
same fields. Both see named NumPy arrays; nothing here knows what they mean.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ALIGNMENT = 64  # bytes: a cache line, so that two fields never share one


@dataclass(frozen=True)
class Field:
    """One array: its name, shape and NumPy type name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Bytes, rounded up to whole cache lines."""
        exact = int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize
        return -(-exact // _ALIGNMENT) * _ALIGNMENT


class SharedArrays:
    """Named arrays in one piece of memory; pages that nobody writes cost nothing.

    Args:
        fields: the arrays, in the same order on both sides.
        fd: what the owner's ``fd`` became in this process; None makes new, zeroed memory.
    """

    def __init__(self, fields: Sequence[Field], fd: int | None = None) -> None:
        total = max(sum(field.size for field in fields), 1)
        self.fd = _nameless_file(total) if fd is None else fd
        self._map = mmap.mmap(self.fd, total)
        self._arrays: dict[str, np.ndarray] = {}
        offset = 0
        for field in fields:
            array: np.ndarray = np.ndarray(field.shape, field.dtype, self._map, offset)
            self._arrays[field.name] = array
            offset += field.size

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the live array of that name; writes show in the other process."""
        return self._arrays[name]

    def close(self) -> None:
        """Unmap; may be called twice. Arrays that are still held keep the memory alive."""
        self._arrays.clear()
        with contextlib.suppress(BufferError):
            self._map.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rlinf")
    else:
        with tempfile.TemporaryFile() as file:  # unlinked at once; lives as long as the descriptor
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
