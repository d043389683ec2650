"""Parcels: items on their way, the small in the message itself, the large in Ray's shared memory.

Whoever only passes a parcel on, as the board does, never has the item in its hands: the memory of a
large one is an object of Ray's, which a reader on the same machine maps instead of copying, and to
another machine is moved once, straight to the reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import RayError

from rlinf_core.api import RuntimeFailure, toolkit

_INLINE = 1 << 15  # bytes: up to here an object of its own costs more than it saves


class Parcel(NamedTuple):
    """An item: its pickle and its buffers, or where Ray keeps both."""

    head: Any
    buffers: tuple[Any, ...] = ()
    ref: ray.ObjectRef | None = None


def wrap(item: object) -> Parcel:
    """Return an item ready to be sent; what is large is copied once, into shared memory.

    Raises:
        TypeError: something in it cannot be pickled.
        RuntimeFailure: Ray has no room for it, neither in memory nor on disk.
    """
    head, buffers = toolkit.pack(item)
    if len(head) + sum(buffer.nbytes for buffer in buffers) <= _INLINE:
        return Parcel(head, tuple(bytes(buffer) for buffer in buffers))
    try:
        return Parcel(b"", (), ray.put([_array(head), *map(_array, buffers)]))
    except RayError as error:
        raise RuntimeFailure(f"Ray cannot keep an item: {type(error).__name__}: {error}") from None


def lay_open(item: object) -> Parcel:
    """Return an item as the result of a call, whose memory Ray takes care of by itself."""
    head, buffers = toolkit.pack(item)
    return Parcel(head, tuple(map(_array, buffers)))


def unwrap(parcel: Parcel) -> Any:
    """Return the item. Its large arrays and tensors lie in the memory that the sender wrote."""
    head, buffers = parcel.head, parcel.buffers
    if parcel.ref is not None:
        head, *buffers = ray.get(parcel.ref)
    return toolkit.unpack(head, _ours(buffers))


def _array(buffer: Any) -> np.ndarray:
    return np.frombuffer(buffer, np.uint8)


def _ours(buffers: Iterable[Any]) -> list[Any]:
    """Return buffers as the arrays and tensors of an item may have them: they can be written to.

    Ray hands out its memory as read-only, since an object may have many readers, and torch warns of
    tensors over such memory. An item has one reader.
    """
    return [
        np.asarray(_Memory(buffer)) if isinstance(buffer, np.ndarray) else bytearray(buffer)
        for buffer in buffers
    ]


class _Memory:
    """The memory of an array, as numpy's array interface shows it; keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": "|u1",
            "data": (array.ctypes.data, False),
        }
