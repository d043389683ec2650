"""Wires: what carries tensors from one process to another, one way each; see ``ways.py``.

The source calls :meth:`Wire.pack`, puts the ticket that it gets into a message to the target, then
calls :meth:`Wire.deliver`. The target, when it has the message, calls :meth:`Wire.unpack` with the
ticket. Messages travel in channels of the runtime, and so, for some ways, do the tensors.
Wires over a network, or from device to device, are in ``groups.py``.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rlinf_core.errors import WeightSyncError
from rlinf_core.transport.ways import Endpoint, Way


class Form(NamedTuple):
    """Shape and dtype of a tensor that is to come."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Wire(Protocol):
    """One direction between two ends, from ``source`` to ``target``; made at each end.

    The target of a way is called as ``target(source, target, timeout)``.
    """

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """Get tensors ready and return a ticket, which can be pickled."""
        ...

    def deliver(self) -> None:
        """Begin to send what was packed, after the ticket has been sent."""
        ...

    def finish(self) -> None:
        """Wait until what was packed may be changed again.

        Raises:
            WeightSyncError: the other end did not take it in time.
        """
        ...

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Return the tensors of a ticket.

        Raises:
            WeightSyncError: the other end did not send them in time.
        """
        ...

    def close(self) -> None:
        """Free everything."""
        ...


def make_wire(way: Way, source: Endpoint, target: Endpoint, timeout: float) -> Wire:
    """Return one end of a wire; ``timeout`` is in seconds."""
    module, _, name = way.wire.partition(":")
    make: Callable[..., Wire] = getattr(importlib.import_module(module), name)
    return make(source, target, timeout)


def here(name: str, device: str) -> Endpoint:
    """Return where this process and this device are.

    Args:
        name: ``group[rank]``.
        device: torch's name of the device that its tensors live on.
    """
    found = torch.device(device)
    boot = Path("/proc/sys/kernel/random/boot_id")
    number = boot.read_text(encoding="ascii").strip() if boot.exists() else ""
    return Endpoint(
        name,
        host=f"{socket.gethostname()} {number}",
        process=str(os.getpid()),
        torch_name=device,
        device=_identity(found),
        collective=torch.distributed.get_default_backend_for_device(found)
        if torch.distributed.is_available()
        else "",
        kind="hip" if found.type == "cuda" and torch.version.hip else found.type,
        handles=found.type == "cuda",
    )


def _identity(device: torch.device) -> str:
    """Return what tells a device from others, whatever numbers a process sees them by."""
    if device.type != "cuda":
        return str(device)
    return str(torch.cuda.get_device_properties(device).uuid)


class _Simple:
    """What most wires need not do."""

    def __init__(self, source: Endpoint, target: Endpoint, timeout: float) -> None:
        self._source, self._target, self._timeout = source, target, timeout

    def deliver(self) -> None:
        """Nothing more to send."""

    def finish(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to free."""


class ReferenceWire(_Simple):
    """Within one process: a copy, so that the source may go on and change its own."""

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """Return copies."""
        return [tensor.detach().clone() for tensor in tensors]

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Return the copies."""
        return list(ticket)


class ChannelWire(_Simple):
    """Through the runtime's channel, which copies what is put, once, into shared memory."""

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """Return the tensors themselves."""
        return [tensor.detach() for tensor in tensors]

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Return tensors over the shared memory."""
        return list(ticket)


class HandleWire(_Simple):
    """Between two processes on one device: a handle to a copy in its memory.

    Torch keeps the copy for as long as the other process holds it.
    """

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """Copy tensors into one piece of the device's memory and return its handle."""
        from torch.multiprocessing.reductions import reduce_tensor

        flat = flatten(tensors, torch.device(self._source.torch_name))
        self._sync(flat)  # the other process sees what was written, not what is being written
        return reduce_tensor(flat)  # type: ignore[no-untyped-call]

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Return tensors over the other process's memory."""
        rebuild, arguments = ticket
        try:
            return split(rebuild(*arguments), forms)
        except RuntimeError as error:
            raise WeightSyncError(
                f"{self._target.name} cannot open the device memory of {self._source.name}: "
                f"{error}; set weights.way: shared_memory to go through host memory"
            ) from error

    @staticmethod
    def _sync(flat: Tensor) -> None:
        getattr(torch, flat.device.type).synchronize(flat.device)


# --- tensors in one piece of memory ---------------------------------------------------------------

_ALIGNMENT = 64  # bytes, so that any dtype may be read in place


def flat_bytes(forms: Sequence[Form]) -> int:
    """Return how many bytes these tensors take in one piece, each aligned."""
    return sum(_aligned(_bytes(form)) for form in forms)


def forms_of(tensors: Sequence[Tensor]) -> list[Form]:
    """Return shape and dtype of tensors."""
    return [Form(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def flatten(tensors: Sequence[Tensor], device: torch.device, into: Tensor | None = None) -> Tensor:
    """Return tensors in one piece of memory, uint8 [bytes]; the beginning of ``into``."""
    forms = forms_of(tensors)
    size = flat_bytes(forms)
    flat = torch.empty(size, dtype=torch.uint8, device=device) if into is None else into[:size]
    for tensor, place in zip(tensors, split(flat, forms), strict=True):
        place.copy_(tensor.detach())
    return flat


def split(flat: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """Return the tensors that :func:`flatten` wrote, over the same memory."""
    found, offset = [], 0
    for form in forms:
        size = _bytes(form)
        found.append(flat[offset : offset + size].view(form.dtype).view(form.shape))
        offset += _aligned(size)
    return found


def _bytes(form: Form) -> int:
    size = form.dtype.itemsize
    for length in form.shape:
        size *= length
    return size


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
