"""Wires over torch.distributed: one process group for each pair of ends, made when first needed.

A group of two knows nobody else, so an end joins or leaves without anybody's restart, and who does
not answer is known by name. The source's process keeps a store by which its pairs find each other.
"""

from __future__ import annotations

import functools
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor

from rlinf_core.errors import WeightSyncError
from rlinf_core.transport.ways import Endpoint
from rlinf_core.transport.wires import Form, flat_bytes, flatten, split

dist: Any = torch.distributed  # whose type stubs leave out what is used here

_SOURCE, _TARGET = 0, 1  # ranks within a pair


class Ticket(NamedTuple):
    """Where the target finds the source."""

    address: str
    port: int
    session: str


class GroupWire:
    """A pair's process group; what is packed travels in one piece of memory.

    Args:
        source: one end.
        target: the other.
        timeout: seconds to wait for it.
    """

    backend = ""
    """Name of the torch.distributed backend; subclasses say which."""

    def __init__(self, source: Endpoint, target: Endpoint, timeout: float) -> None:
        self._source, self._target, self._timeout = source, target, timedelta(seconds=timeout)
        self._session = uuid.uuid4().hex
        self._group: Any = None
        self._buffer: Tensor | None = None  # of the source, used again for what is sent next
        self._flat: Tensor | None = None
        self._works: list[Any] = []

    def pack(self, tensors: Sequence[Tensor]) -> Ticket:
        """Copy tensors into one piece of memory; return where to fetch it."""
        size = sum(tensor.numel() * tensor.element_size() + 64 for tensor in tensors)
        if self._buffer is None or self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self._device(self._source))
        self._flat = flatten(tensors, self._buffer.device, self._buffer)
        store = _store()
        address = "127.0.0.1" if self._source.host == self._target.host else _address()
        return Ticket(address, store.port, self._session)

    def deliver(self) -> None:
        """Begin to send; the first time, wait for the target to join."""
        with self._awaiting(self._target):
            if self._group is None:
                store = dist.PrefixStore(self._session, _store())
                self._group = self._make_group(store, _SOURCE)
            self._works = [self._group.send([self._flat], _TARGET, 0)]

    def finish(self) -> None:
        """Wait until everything is sent."""
        with self._awaiting(self._target):
            for work in self._works:
                work.wait()
        self._works, self._flat = [], None

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Receive the tensors; the first time, join the source."""
        where = Ticket(*ticket)
        flat = torch.empty(flat_bytes(forms), dtype=torch.uint8, device=self._device(self._target))
        with self._awaiting(self._source):
            if self._group is None:
                store = dist.TCPStore(
                    where.address, where.port, is_master=False, wait_for_workers=False,
                    timeout=self._timeout,
                )  # fmt: skip
                self._group = self._make_group(dist.PrefixStore(where.session, store), _TARGET)
            self._group.recv([flat], _SOURCE, 0).wait()
        return split(flat, forms)

    def close(self) -> None:
        """Leave the pair."""
        self._group, self._works, self._buffer, self._flat = None, [], None, None

    def _device(self, end: Endpoint) -> torch.device:
        """Return the device that what travels lies on."""
        return torch.device(end.torch_name)

    def _make_group(self, store: Any, rank: int) -> Any:
        name = self.backend or self._source.collective
        try:
            return _maker(name)(store, rank, 2, self._timeout)
        except LookupError:
            raise WeightSyncError(
                f"this torch has no collective backend {name!r}, by which {self._source.name} "
                f"would send to {self._target.name}; wanted a torch that has it, or weights.way: "
                "shared_memory or gloo"
            ) from None

    @contextmanager
    def _awaiting(self, peer: Endpoint) -> Iterator[None]:
        """Name the other end where it is not there, does not answer or goes away."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self.close()
            first = str(error).strip().partition("\n")[0]
            name = self.backend or self._source.collective
            raise WeightSyncError(
                f"{peer.name} is missing: it did not answer by {name} within "
                f"{self._timeout.total_seconds():g} s, or went away ({first})"
            ) from error


class GlooWire(GroupWire):
    """Through host memory and TCP, between any two processes."""

    backend = "gloo"

    def _device(self, end: Endpoint) -> torch.device:
        return torch.device("cpu")


class CollectiveWire(GroupWire):
    """From device to device, by the collective backend of their kind, such as NCCL."""

    def finish(self) -> None:
        """Wait until the device has sent everything."""
        super().finish()
        getattr(torch, self._source.type).synchronize(self._device(self._source))

    def unpack(self, ticket: Any, forms: Sequence[Form]) -> list[Tensor]:
        """Receive the tensors, and wait until the device has them."""
        tensors = super().unpack(ticket, forms)
        getattr(torch, self._target.type).synchronize(self._device(self._target))
        return tensors


def _maker(backend: str) -> Callable[[Any, int, int, timedelta], Any]:
    """Return what makes a group of a torch.distributed backend: (store, rank, size, timeout).

    Raises:
        LookupError: this torch has no such backend.
    """
    if backend == "nccl" and dist.is_nccl_available():
        return _nccl
    maker: Callable[[Any, int, int, timedelta], Any]
    if backend == "gloo" and dist.is_gloo_available():
        maker = dist.ProcessGroupGloo
        return maker
    plugin = dist.Backend._plugins[backend.upper()]  # of an accelerator that torch does not know
    if plugin.extended_api:
        raise LookupError(backend)
    maker = plugin.creator_fn
    return maker


def _nccl(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


@functools.cache
def _store() -> Any:
    """Return the store of this process, by which its pairs find each other."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def _address() -> str:
    """Return the address by which other machines reach this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; asks which address it would be sent from
        return str(probe.getsockname()[0])
