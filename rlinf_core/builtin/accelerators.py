"""The accelerators of the core: CPU slots and CUDA GPUs. Finding them imports no torch."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
"""Where the NVIDIA driver lists its GPUs on Linux, one folder each."""


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
    """NVIDIA GPUs, counted by the driver."""

    torch_name = "cuda"
    visibility_variable = "CUDA_VISIBLE_DEVICES"
    collective = "nccl"

    def count(self) -> int:
        """Return how many GPUs are visible; 0 where there is no driver."""
        present = _driver_count()
        shown = os.environ.get(self.visibility_variable)
        if shown is None:
            return present
        return min(
            present, len([part for part in shown.split(",") if part.strip() not in ("", "-1")])
        )

    def memory(self, index: int) -> int | None:
        """Return None: telling it would start the driver in this process."""
        return None


def _driver_count() -> int:
    if DRIVER_FOLDER.is_dir():
        return sum(1 for _ in DRIVER_FOLDER.iterdir())
    try:  # Windows Subsystem for Linux and containers list nothing under /proc
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    number = ctypes.c_uint(0)
    if driver.nvmlInit_v2() != 0:
        return 0
    driver.nvmlDeviceGetCount_v2(ctypes.byref(number))
    driver.nvmlShutdown()
    return number.value
