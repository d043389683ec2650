"""Packing: any object as a few bytes and the raw memory of its arrays and tensors, not copied.

Pickle's protocol 5 leaves large buffers out of the stream; torch tensors, which it would copy, are
left out here in the same way. What comes back are tensors and arrays over the very memory that
:func:`unpack` is given. No torch is imported: where nobody has, there are no tensors.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Iterable
from typing import Any


def pack(item: object) -> tuple[bytes, list[memoryview]]:
    """Return an object as a pickle and the buffers, flat bytes, that were left out of it.

    Buffers share the memory of their arrays and tensors; tensors of other devices, and what is not
    contiguous, are copied first.

    Raises:
        TypeError: something in it cannot be pickled.
    """
    buffers: list[memoryview] = []
    stream = io.BytesIO()
    try:
        _Packer(stream, buffers).dump(item)
    except (pickle.PicklingError, AttributeError) as error:
        raise TypeError(
            f"{type(item).__name__} cannot be sent to another process: {error}"
        ) from error
    return stream.getvalue(), buffers


def unpack(head: Any, buffers: Iterable[Any]) -> Any:
    """Return the object of a pickle (any bytes), its arrays and tensors over ``buffers``."""
    return pickle.loads(head, buffers=buffers)


class _Packer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, buffers: list[memoryview]) -> None:
        super().__init__(stream, 5, buffer_callback=lambda b: buffers.append(b.raw()))
        self._tensor_type = getattr(sys.modules.get("torch"), "Tensor", None)

    def reducer_override(self, item: Any) -> Any:
        if self._tensor_type is None or type(item) is not self._tensor_type:
            return NotImplemented
        if item.is_quantized or str(item.layout) != "torch.strided":
            return NotImplemented
        tensor = item.detach().cpu().resolve_conj().resolve_neg().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        if tensor.numel() == 0:
            return _empty_tensor, (name, shape)
        flat = tensor.reshape(-1).view(sys.modules["torch"].uint8).numpy()
        return _tensor, (pickle.PickleBuffer(flat), name, shape)


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = importlib.import_module("torch")
    return torch.frombuffer(buffer, dtype=getattr(torch, dtype)).reshape(shape)


def _empty_tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    torch = importlib.import_module("torch")
    return torch.empty(shape, dtype=getattr(torch, dtype))
