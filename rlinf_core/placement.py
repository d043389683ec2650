"""Placement: which devices each group of workers gets, and in how many processes.

What a person writes in a run file, one line per group or for several groups at once::

    cluster: {devices: 4 x cpu}
    placement:
      simulation: 0-1          # two processes, one per device
      rollout: "2:2"           # two processes share device 2
      training: "all:1"        # one process has all four

is turned into a :data:`GroupPlace` per group. Plain arithmetic, without torch: ``rlinf plan`` and
the checks of a run file use it, and so does the session that starts the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Device:
    """One device of a run: an accelerator, or a slot of a CPU that the run file declares.

    Attributes:
        kind: name of the accelerator component, such as "cpu" or "cuda".
        index: its number among the run's devices, from 0; node groups count on from one another.
        local: its number on its own machine and of its own kind, from 0.
        torch_name: what torch calls it: "cpu", "cuda:0".
        node: label of its node group; "" where the run declares none.
    """

    kind: str
    index: int
    local: int
    torch_name: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.node}/{self.kind}:{self.index}" if self.node else f"{self.kind}:{self.index}"


@dataclass(frozen=True)
class ProcessPlace:
    """Where one process of a group runs.

    Attributes:
        devices: the devices it may use; the first is the one that its tensors live on.
        environment: variables on top of the driver's, from its node group.
    """

    devices: tuple[Device, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


GroupPlace = tuple[ProcessPlace, ...]
"""Where a group runs: one entry per process, by rank."""
