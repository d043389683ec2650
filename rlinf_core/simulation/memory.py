"""Shared memory that has no name: nothing is left in /dev/shm, whoever is killed.

The owner makes a :class:`SharedArrays` from fields and hands its ``fd`` to a child, which maps the
same fields. Both see named NumPy arrays; nothing here knows what they mean.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlinf_core.errors import SimulatorError

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

    Raises:
        SimulatorError: the system has no memory for them.
    """

    def __init__(self, fields: Sequence[Field], fd: int | None = None) -> None:
        total = max(sum(field.size for field in fields), 1)
        with _memory_wanted(total):
            self.fd = _nameless_file(total) if fd is None else fd
            self._map = mmap.mmap(self.fd, total)
        self._arrays: dict[str, np.ndarray] = {}
        self._places: dict[str, tuple[int, int]] = {}
        offset = 0
        for field in fields:
            array: np.ndarray = np.ndarray(field.shape, field.dtype, self._map, offset)
            self._arrays[field.name] = array
            self._places[field.name] = offset, field.size
            offset += field.size

    def reserve(self, names: Iterable[str]) -> None:
        """Have the system find memory for some arrays now; writing where there is none kills.

        Raises:
            SimulatorError: there is none.
        """
        for name in names:
            offset, size = self._places[name]
            if size and hasattr(os, "posix_fallocate"):
                with _memory_wanted(size):
                    os.posix_fallocate(self.fd, offset, size)

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


@contextlib.contextmanager
def _memory_wanted(size: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulatorError(
            f"no shared memory for {size / 2**20:.1f} MiB of observations: {error.strerror}. It "
            "counts against the memory of the machine or container: give it more, or simulate less "
            "at once (collect.envs, or smaller pictures)"
        ) from error


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rlinf")
    else:
        with tempfile.TemporaryFile() as file:  # unlinked at once; lives as long as the descriptor
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd
