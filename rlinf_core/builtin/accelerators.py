"""The accelerators of the core: CPU slots and CUDA GPUs. Finding them imports no torch."""

from __future__ import annotations

import os

from rlinf_core.builtin import nvml
from rlinf_core.devices import visible


class Cpu:
    """This machine's processor, as one device."""

    torch_name = "cpu"
    visibility_variable = ""
    collective = "gloo"

    def count(self) -> int:
        """Return 1: one processor."""
        return 1

    def memory(self, index: int) -> int | None:
        """Return the machine's memory in bytes."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Cuda:
    """NVIDIA GPUs, as the driver tells them; of those that are split, one compute instance."""

    torch_name = "cuda"
    visibility_variable = "CUDA_VISIBLE_DEVICES"
    collective = "nccl"
    handles = True
    torch_build = "CUDA"

    def __init__(self) -> None:
        self._found: tuple[nvml.Gpu, ...] | None = None  # asking takes up to a second

    def count(self) -> int:
        """Return how many GPUs a process would see; 0 where there is no driver."""
        return len(self._visible())

    def memory(self, index: int) -> int | None:
        """Return a GPU's memory in bytes.

        None without the driver's management library, and where GPUs are of several sizes and CUDA
        may number them by speed, which that library does not (CUDA_DEVICE_ORDER decides).
        """
        shown = self._visible()
        by_name = os.environ.get(self.visibility_variable, "").startswith(("GPU-", "MIG-"))
        by_place = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        alike = len({_first_part(gpu).memory for gpu in self._all()}) == 1
        if not 0 <= index < len(shown) or not (by_name or by_place or alike):
            return None
        return shown[index].memory

    def _all(self) -> tuple[nvml.Gpu, ...]:
        if self._found is None:
            self._found = nvml.gpus()
        return self._found

    def _visible(self) -> list[nvml.Gpu]:
        """Return what a CUDA process would see, in its order.

        A process sees one compute instance at most, and where it sees one, no whole GPU.
        """
        whole = self._all()
        named = [*whole, *(part for gpu in whole for part in gpu.parts)]
        text = os.environ.get(self.visibility_variable)
        numbers = visible(text, [gpu.uuid for gpu in named], len(whole))
        shown = [_first_part(named[number]) for number in numbers]
        parts = [gpu for gpu in shown if gpu not in whole]
        return parts[:1] or shown


def _first_part(gpu: nvml.Gpu) -> nvml.Gpu:
    return gpu.parts[0] if gpu.parts else gpu
