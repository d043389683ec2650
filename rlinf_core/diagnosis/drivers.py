"""Drivers and libraries for computing and drawing: CUDA, Vulkan, OpenGL.

Opening a driver's library may crash, so :func:`libraries` runs in a process of its own. A fact is
told by a function; add it to :data:`FACTS`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rlinf_core.diagnosis.apart import Call
from rlinf_core.diagnosis.machine import Fact, Surroundings

_LIBRARIES = {
    "cuda": ("libcuda.so.1",),
    "vulkan": ("libvulkan.so.1", "libvulkan.1.dylib"),
    "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"),
    "egl": ("libEGL.so.1", "libEGL.so"),
}
"""What is opened to see whether it is there, by the names that loaders know."""

_VULKAN_FOLDERS = (
    "/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "~/.local/share/vulkan/icd.d",
)
_EGL_FOLDERS = ("/etc/glvnd/egl_vendor.d", "/usr/share/glvnd/egl_vendor.d")


def library_call() -> Call:
    """Return the call that opens libraries, in a process of its own."""
    return Call(f"{__name__}:libraries", None, 20.0)


def libraries(_: None) -> dict[str, Any]:
    """Open each library of :data:`_LIBRARIES`; return the name it was found by, and a version."""
    found: dict[str, Any] = {}
    for key, names in _LIBRARIES.items():
        found[key] = next((name for name in names if _opens(name)), None)
    if found["cuda"]:
        version = ctypes.c_int(0)
        if ctypes.CDLL(found["cuda"]).cuDriverGetVersion(ctypes.byref(version)) == 0:
            found["cuda_version"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return found


def _cuda(found: Surroundings) -> Iterator[Fact]:
    if not found.libraries.get("cuda"):
        yield Fact("cuda_driver", None, _missing(found, "none (no libcuda.so.1)"))
        return
    version = found.libraries.get("cuda_version")
    kernel = _kernel_driver()
    shown = f"takes CUDA up to {version or 'an unknown version'}"
    value = {"cuda": version, "driver": kernel}
    yield Fact("cuda_driver", value, f"driver {kernel}, {shown}" if kernel else shown)


def _vulkan(found: Surroundings) -> Iterator[Fact]:
    loader = found.libraries.get("vulkan")
    given = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or ""
    named = [path for path in given.split(os.pathsep) if path and os.path.exists(path)]
    drivers = named or _files(_VULKAN_FOLDERS)
    shown = f"loader {loader}" if loader else _missing(found, "no loader library (libvulkan.so.1)")
    names = ", ".join(Path(path).name for path in drivers)
    shown += f"; drivers {names}" if drivers else "; no driver"
    yield Fact("vulkan", {"loader": loader, "drivers": drivers}, shown)


def _opengl(found: Surroundings) -> Iterator[Fact]:
    osmesa, egl = found.libraries.get("osmesa"), found.libraries.get("egl")
    vendors = _files(_EGL_FOLDERS)
    parts = [osmesa and f"OSMesa ({osmesa})", egl and f"EGL ({egl})"]
    shown = ", ".join(part for part in parts if part)
    if egl:
        names = ", ".join(Path(path).name for path in vendors)
        shown += f", vendors {names}" if vendors else ", no vendor"
    yield Fact(
        "opengl",
        {"osmesa": osmesa, "egl": egl, "egl_vendors": vendors},
        shown or _missing(found, "neither OSMesa nor EGL"),
    )


def _opens(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _kernel_driver() -> str | None:
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((word for word in first.split() if word[:1].isdigit() and "." in word), None)


def _files(folders: Iterable[str]) -> list[str]:
    return [
        str(file)
        for folder in folders
        for file in sorted(Path(os.path.expanduser(folder)).glob("*.json"))
    ]


def _missing(found: Surroundings, otherwise: str) -> str:
    return f"cannot be told: looking {found.fault}" if found.fault else otherwise


FACTS: tuple[Callable[[Surroundings], Iterator[Fact]], ...] = (_cuda, _vulkan, _opengl)
"""In the order in which they are shown."""
