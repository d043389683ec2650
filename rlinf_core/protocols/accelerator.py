"""Accelerator: one kind of device, how it is found, shown to a process and spoken to.

The target of an accelerator component is called as ``target()``; finding devices imports no torch.
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
        """Return a device's memory in bytes, or None where it cannot be told without a driver."""
        ...
