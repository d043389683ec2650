"""NVIDIA's GPUs as the driver's management library tells them, without starting CUDA.

The library is part of the driver. A process that has asked it can still fork and use CUDA later.
Whatever is missing or refuses comes out as None: nothing here raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = "libnvidia-ml.so.1"
"""The management library, by the name that the loader knows."""

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
"""Where the kernel's driver lists GPUs on Linux, one folder each, also without that library."""

_UUID_BYTES = 96
_MOST_PARTS = 64


class Gpu(NamedTuple):
    """One GPU, or one compute instance of a GPU that is split (MIG).

    Attributes:
        uuid: such as "GPU-8932f937-..." or "MIG-..."; empty where it cannot be told.
        memory: bytes; None where that cannot be told.
        parts: its compute instances; empty where it is not split.
    """

    uuid: str = ""
    memory: int | None = None
    parts: tuple[Gpu, ...] = ()


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine in the order of their numbers; none without a driver."""
    with suppress(OSError, AttributeError), _opened() as library:
        return tuple(_gpus(library))
    return _listed()


@contextmanager
def _opened() -> Iterator[Any]:
    """Open the library for as long as the block lasts.

    Raises:
        OSError: there is none, or its driver does not run.
        AttributeError: it lacks a function that every version has.
    """
    library = ctypes.CDLL(LIBRARY)
    if library.nvmlInit_v2() != 0:
        raise OSError(f"{LIBRARY} cannot be initialised")
    try:
        yield library
    finally:
        library.nvmlShutdown()


def _gpus(library: Any) -> Iterator[Gpu]:
    number = ctypes.c_uint(0)
    if library.nvmlDeviceGetCount_v2(ctypes.byref(number)) != 0:
        raise OSError(f"{LIBRARY} does not count its devices")
    for index in range(number.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            yield Gpu()  # it is there, and keeps its number
            continue
        yield _described(library, handle)._replace(parts=tuple(_parts(library, handle)))


def _parts(library: Any, handle: ctypes.c_void_p) -> Iterator[Gpu]:
    """Yield the compute instances of a GPU; drivers before MIG lack the functions."""
    with suppress(AttributeError):
        most = ctypes.c_uint(0)
        if library.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(most)) != 0:
            return
        for index in range(min(most.value, _MOST_PARTS)):
            part = ctypes.c_void_p()
            if library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(part)) == 0:
                yield _described(library, part)


def _described(library: Any, handle: ctypes.c_void_p) -> Gpu:
    name, memory = ctypes.create_string_buffer(_UUID_BYTES), _Memory()
    told = library.nvmlDeviceGetUUID(handle, name, _UUID_BYTES) == 0
    uuid = name.value.decode("ascii", "replace") if told else ""
    known = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0 and memory.total
    return Gpu(uuid, int(memory.total) if known else None)


def _listed() -> tuple[Gpu, ...]:
    """Return what the kernel's driver lists: numbers and names, no memory."""
    with suppress(OSError):
        return tuple(Gpu(_uuid(folder)) for folder in sorted(DRIVER_FOLDER.iterdir()))
    return ()


def _uuid(folder: Path) -> str:
    with suppress(OSError):
        for line in (folder / "information").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "GPU UUID":
                return value.strip()
    return ""
