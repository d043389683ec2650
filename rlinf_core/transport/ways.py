"""Ways: by which one a tensor gets from one process to another, decided by where the two ends are.

Plain data and arithmetic, without torch: ``rlinf plan`` decides by the same function as a run. What
walks a way is a wire, named here by string and imported where it is used. A new way is one more
entry of :data:`WAYS`, before those that it is better than.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlinf_core.errors import WeightSyncError, did_you_mean

AUTO = "auto"
"""As an option: the first way that joins the two ends."""


@dataclass(frozen=True)
class Endpoint:
    """Where one end is.

    Attributes:
        name: ``group[rank]``, for messages.
        host: what tells its machine from others.
        process: what tells its process from others of that machine.
        torch_name: what its own torch calls the device that its tensors live on: "cuda:0".
        device: what tells that device from others of that machine and type.
        collective: torch.distributed backend between such devices: "gloo", "nccl".
        kind: what tells its kind of device from others of that type: AMD's are "cuda", too.
        handles: whether another process can open memory of that device.
    """

    name: str
    host: str = ""
    process: str = ""
    torch_name: str = "cpu"
    device: str = ""
    collective: str = "gloo"
    kind: str = ""
    handles: bool = True

    @property
    def type(self) -> str:
        """Torch's type of that device: "cpu", "cuda"."""
        return self.torch_name.partition(":")[0]

    @property
    def called(self) -> str:
        """The kind of device, for people."""
        return self.kind or self.type


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        name: as an option.
        label: as a plan shows it; "" stands for the name of the collective backend.
        wire: ``"module:Class"`` of what walks it; see :mod:`rlinf_core.transport.wires`.
        unfit: returns why it does not join two ends; "" where it does.
    """

    name: str
    label: str
    wire: str
    unfit: Callable[[Endpoint, Endpoint], str]

    def shown(self, source: Endpoint) -> str:
        """Return what a plan shows."""
        return self.label or source.collective


def _reference(source: Endpoint, target: Endpoint) -> str:
    return "" if _one_process(source, target) else "they are two processes"


def _handle(source: Endpoint, target: Endpoint) -> str:
    if source.type == "cpu" or target.type == "cpu":
        return "an end is on a CPU"
    if not _one_device(source, target):
        return "they are on two devices"
    return "" if source.handles else f"no process can open another's memory of {source.called}"


def _collective(source: Endpoint, target: Endpoint) -> str:
    if source.type == "cpu" or target.type == "cpu":
        return "an end is on a CPU"
    if (source.type, source.kind) != (target.type, target.kind):
        return f"{source.called} and {target.called} have no collective in common"
    return "they are on one device" if _one_device(source, target) else ""


def _shared_memory(source: Endpoint, target: Endpoint) -> str:
    if source.host != target.host:
        return "they are on two machines"
    return "they are in one process" if _one_process(source, target) else ""


def _gloo(source: Endpoint, target: Endpoint) -> str:
    return "they are in one process" if _one_process(source, target) else ""


def _one_device(source: Endpoint, target: Endpoint) -> bool:
    ends = [(end.host, end.type, end.kind, end.device) for end in (source, target)]
    return ends[0] == ends[1]


def _one_process(source: Endpoint, target: Endpoint) -> bool:
    return (source.host, source.process) == (target.host, target.process)


_WIRES = "rlinf_core.transport.wires"

WAYS = (
    Way("reference", "reference", f"{_WIRES}:ReferenceWire", _reference),
    Way("device_handle", "device handle", f"{_WIRES}:HandleWire", _handle),
    Way("collective", "", "rlinf_core.transport.groups:CollectiveWire", _collective),
    Way("shared_memory", "shared memory", f"{_WIRES}:ChannelWire", _shared_memory),
    Way("gloo", "gloo", "rlinf_core.transport.groups:GlooWire", _gloo),
)
"""All ways, the best first: within one process; through a handle to a device's memory; by the
devices' own collective backend; through host memory and the runtime's channels; over a network."""


def choose_way(source: Endpoint, target: Endpoint, wanted: str = AUTO) -> Way:
    """Return the way from one end to the other.

    Args:
        source: where tensors come from.
        target: where they go.
        wanted: name of a way, or :data:`AUTO`.

    Raises:
        WeightSyncError: there is no way of that name, or it does not join these ends.
    """
    if wanted == AUTO:
        return next(way for way in WAYS if not way.unfit(source, target))
    names = [way.name for way in WAYS]
    if wanted not in names:
        near = did_you_mean(wanted, names)
        raise WeightSyncError(f"there is no way {wanted!r}; wanted {AUTO} or {names}.{near}")
    way = WAYS[names.index(wanted)]
    if why := way.unfit(source, target):
        fit = [other.name for other in WAYS if not other.unfit(source, target)]
        raise WeightSyncError(
            f"the way {wanted!r} does not join {source.name} and {target.name}: {why}; wanted "
            f"{AUTO}, or one of {', '.join(fit)}"
        )
    return way


def detour(way: Way, source: Endpoint, target: Endpoint) -> str:
    """Return why tensors go through host memory, or over a network; "" where they do not."""
    reasons = []
    if way.name in ("shared_memory", "gloo") and {source.type, target.type} != {"cpu"}:
        reasons.append((_handle if _one_device(source, target) else _collective)(source, target))
    if way.name == "gloo":
        reasons.append(_shared_memory(source, target))
    return " and ".join(reason for reason in reasons if reason)
