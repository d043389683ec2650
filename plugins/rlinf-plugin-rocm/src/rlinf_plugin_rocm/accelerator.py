"""The accelerator ``rocm``: AMD GPUs, as the kernel's driver lists them.

Nothing of ROCm's is loaded and no torch imported: ``/sys/class/kfd`` has one folder per *node*,
processors and GPUs alike, with a file ``properties`` of names and numbers, and one such file per
bank of memory. The fields are those of the kernel's amdkfd (uapi of the HSA topology).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rlinf_core.api import visible

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where the driver lists processors and GPUs, by number."""

RENDER = Path("/dev/dri")
"""Where a GPU is opened, ``renderD128`` and so on; a container is given only some of them."""

FRAME_BUFFER = (1, 2)
"""Types of memory bank that lie on the GPU: of which the processor sees all, or not all."""


class Gpu(NamedTuple):
    """One GPU: its name as visibility variables take it, and its memory in bytes."""

    name: str
    memory: int | None


class Rocm:
    """AMD GPUs. torch calls them "cuda", as its build for ROCm does with all that is CUDA's."""

    torch_name = "cuda"
    visibility_variable = "HIP_VISIBLE_DEVICES"
    collective = "nccl"  # the name under which torch runs RCCL
    handles = True
    torch_build = "ROCm"

    def count(self) -> int:
        """Return how many GPUs a process would see; 0 where there is no driver."""
        return len(_visible())

    def memory(self, index: int) -> int | None:
        """Return a GPU's memory in bytes."""
        shown = _visible()
        return shown[index].memory if 0 <= index < len(shown) else None


def _visible() -> list[Gpu]:
    """Return what a process would see: ROCR's variable first, of the rest what HIP's shows.

    HIP reads CUDA's variable where its own is not set.
    """
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in os.environ else "CUDA_VISIBLE_DEVICES"
    return _shown(os.environ.get(hip), _shown(os.environ.get("ROCR_VISIBLE_DEVICES"), _gpus()))


def _shown(text: str | None, gpus: list[Gpu]) -> list[Gpu]:
    """Return what a variable shows of some GPUs.

    ROCm has names of 64 and of 128 bits, and the driver lists the short ones alone. Others are
    taken on trust, up to the number that there is.
    """
    parts = [part.strip().lower() for part in (text or "").split(",")]
    names = [gpu.name.lower() for gpu in gpus]
    if any(part.startswith("gpu-") and part not in names for part in parts):
        return [Gpu(part, None) for part in parts[: len(gpus)]]
    return [gpus[number] for number in visible(text and text.lower(), names)]


def _gpus() -> list[Gpu]:
    """Return the GPUs that this process may open, in the driver's order."""
    found = []
    with suppress(OSError):
        folders = [folder for folder in NODES.iterdir() if folder.name.isdigit()]
        for folder in sorted(folders, key=lambda folder: int(folder.name)):
            facts = _numbers(folder / "properties")
            minor = facts.get("drm_render_minor", 0)
            if not facts.get("simd_count") or not _may_open(minor):
                continue
            name = f"GPU-{facts['unique_id']:016x}" if facts.get("unique_id") else ""
            found.append(Gpu(name, _memory(folder / "mem_banks")))
    return found


def _memory(folder: Path) -> int | None:
    banks = []
    with suppress(OSError):
        banks = [_numbers(bank / "properties") for bank in folder.iterdir()]
    sizes = [b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") in FRAME_BUFFER]
    return sum(sizes) or None


def _may_open(minor: int) -> bool:
    """Return whether a GPU's device file is there and open to this process."""
    return os.access(RENDER / f"renderD{minor}", os.R_OK | os.W_OK)


def _numbers(path: Path) -> dict[str, int]:
    """Return a file of names and numbers; nothing where it cannot be read, as of a hidden GPU."""
    found = {}
    with suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(" ")
            if value.strip().isdigit():
                found[name] = int(value)
    return found
