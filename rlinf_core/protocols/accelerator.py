"""Accelerator: one kind of device, how it is found, shown to a process and spoken to.

The target of an accelerator component is called as ``target()``; finding devices imports no torch
and starts no driver's context: the process that asks may fork later, or never compute.

An accelerator may say more, in attributes that are left out where there is nothing to say; read
them with :func:`opens_handles` and :func:`needed_build`:

``handles``
    True where a process can open memory of a device that another process filled, without copying it
    (CUDA's inter-process handles); False if left out.
``torch_build``
    What torch has to be built for: "CUDA", "ROCm", "XPU". Two kinds of one ``torch_name`` are told
    apart by it. Empty if left out: any torch will do, or a plugin of torch's brings the device.
"""

from __future__ import annotations

from typing import Protocol


class Accelerator(Protocol):
    """A kind of device, such as CUDA GPUs or CPU slots."""

    torch_name: str
    """Device type in torch: "cpu", "cuda"."""
    visibility_variable: str
    """Environment variable that limits a process to some devices; empty if there is none."""
    collective: str
    """torch.distributed backend between such devices: "gloo", "nccl"."""

    def count(self) -> int:
        """Return how many devices this machine has, honouring the visibility variable."""
        ...

    def memory(self, index: int) -> int | None:
        """Return a device's memory in bytes, or None where it cannot be told without a driver.

        Args:
            index: its number among those that are counted, from 0.
        """
        ...


def opens_handles(accelerator: Accelerator) -> bool:
    """Return whether a process can open device memory that another process filled."""
    return bool(getattr(accelerator, "handles", False))


def needed_build(accelerator: Accelerator) -> str:
    """Return what torch has to be built for; empty where any build will do."""
    return str(getattr(accelerator, "torch_build", ""))
