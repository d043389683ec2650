"""A run's devices, reserved in Ray: what is free, and where, is Ray's to decide; who shares, ours.

Devices that some worker has together must be on one machine; each such set is one bundle of a
placement group, which Ray reserves as a whole or not at all. A node group's bundles ask for a
little of the custom resource that is called as its label, so they land on machines that were
started with it. Workers then join the bundles of their devices and ask Ray for nothing more:
several may share a device, and which of a machine's GPUs a bundle has is asked once and told them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.placement_group import placement_group_table as table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlinf_core.api import (
    Device,
    GroupPlace,
    ProcessPlace,
    RequestError,
    RuntimeFailure,
    did_you_mean,
)

_TOUCH = 0.001  # of the resource that is called as a node group, for each bundle
_ASK = 30.0  # seconds for a machine to say which of its accelerators a bundle has


class Spot(NamedTuple):
    """Where a worker goes.

    Attributes:
        strategy: Ray's name for the place.
        devices: its devices, called as its own process sees them.
        variables: which show its process these devices alone.
    """

    strategy: Any
    devices: tuple[Device, ...]
    variables: Mapping[str, str]


@dataclass
class _Bundle:
    devices: tuple[Device, ...]
    wants: dict[str, float]
    strategy: Any = None
    node: str = ""
    ids: tuple[str, ...] = ()  # of its accelerators on their machine
    variable: str = ""  # by which a process is shown some of them


class Reservation:
    """The devices that a run has taken.

    Args:
        resources: kind of device to Ray's name for it, where that is neither CPU nor GPU.
        patience: seconds to wait for devices that others have.
        idle: called again and again while it waits; may raise.
    """

    def __init__(
        self, resources: Mapping[str, str], patience: float, idle: Callable[[], None]
    ) -> None:
        self._resources, self._patience, self._idle = resources, patience, idle
        self._bundles: dict[int, _Bundle] = {}  # by index of device
        self._groups: list[PlacementGroup] = []

    def take(self, places: Iterable[GroupPlace]) -> None:
        """Reserve what these places have and nobody reserved yet: all of it, or none.

        Raises:
            RequestError: the cluster has no such devices.
            RuntimeFailure: others have them.
        """
        processes = [process.devices for place in places for process in place]
        new = [devices for devices in processes if not self._bundles.keys() >= _numbers(devices)]
        bundles = [
            _Bundle(devices, wanted(devices, self._resources))
            for devices in islands(new, self._bundles.keys())
        ]
        if not bundles:
            return
        _refuse_impossible(bundles)
        group = placement_group([bundle.wants for bundle in bundles], strategy="PACK")
        self._groups.append(group)
        self._wait(group, bundles)
        nodes = table(group)["bundles_to_node_id"]
        for number, bundle in enumerate(bundles):
            bundle.node = nodes[number]
            bundle.strategy = PlacementGroupSchedulingStrategy(group, number)
        self._ask_for_ids([b for b in bundles if b.devices[0].torch_name != "cpu"])
        self._bundles |= {d.index: bundle for bundle in bundles for d in bundle.devices}

    def spot(self, place: ProcessPlace) -> Spot:
        """Return where a worker goes, whose devices were taken.

        Raises:
            RuntimeFailure: its devices are on several machines.
        """
        bundles = {id(b): b for b in (self._bundles[d.index] for d in place.devices)}
        if len({bundle.node for bundle in bundles.values()}) > 1:
            names = ", ".join(map(str, place.devices))
            raise RuntimeFailure(
                f"one process is to have {names}, which Ray has reserved on several machines; tell "
                "the runtime of all groups at once, with reserve()"
            )
        first = self._bundles[place.devices[0].index]
        shown_ids: dict[str, list[str]] = {}
        devices = []
        for device in place.devices:
            bundle = self._bundles[device.index]
            if not bundle.variable:
                devices.append(device)
                continue
            ids = shown_ids.setdefault(bundle.variable, [])
            number = bundle.ids[bundle.devices.index(device)]
            kind = device.torch_name.partition(":")[0]
            local = int(number) if number.isdecimal() else device.local
            devices.append(replace(device, local=local, torch_name=f"{kind}:{len(ids)}"))
            ids.append(number)
        variables = {name: ",".join(ids) for name, ids in shown_ids.items()}
        return Spot(first.strategy, tuple(devices), variables)

    def release(self) -> None:
        """Give everything back."""
        for group in self._groups:
            remove_placement_group(group)
        self._groups, self._bundles = [], {}

    # --- within ----------------------------------------------------------------------------------

    def _wait(self, group: PlacementGroup, bundles: Sequence[_Bundle]) -> None:
        deadline = time.monotonic() + self._patience
        while not group.wait(min(0.5, max(0.01, deadline - time.monotonic()))):
            self._idle()
            if time.monotonic() > deadline:
                wants = shown(_total(bundles))
                free = shown(real(ray.available_resources()))
                raise RuntimeFailure(
                    f"the run needs {wants}, and after {self._patience:g} s others still have "
                    f"them: free are {free or 'none'}. Wait until they are done (ray status shows "
                    "who is there), or give cluster.runtime.patience more seconds"
                )

    def _ask_for_ids(self, bundles: Sequence[_Bundle]) -> None:
        """Learn which of its machine's accelerators each bundle has, as Ray numbers them."""
        asked = []
        for bundle in bundles:
            (name,) = set(bundle.wants) - {bundle.devices[0].node}
            options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": bundle.strategy}
            count = len(bundle.devices)
            options |= {"num_gpus": count} if name == "GPU" else {"resources": {name: count}}
            asked.append(ray.remote(accelerators).options(**options).remote(name))
        try:
            told = ray.get(asked, timeout=_ASK)
        except RayError as error:
            text = f"the machines do not say which accelerators they gave: {error}"
            raise RuntimeFailure(text) from None
        for bundle, (ids, variable) in zip(bundles, told, strict=True):
            bundle.ids, bundle.variable = ids, variable


def accelerators(name: str) -> tuple[tuple[str, ...], str]:
    """Return what this task was given: ids, and the variable by which Ray shows them to it."""
    ids = tuple(ray.get_runtime_context().get_accelerator_ids().get(name, ()))
    told = [v for v, text in os.environ.items() if "VISIBLE" in v and text == ",".join(ids)]
    return ids, told[0] if ids and told else ""


def islands(
    processes: Iterable[Sequence[Device]], taken: Iterable[int] = ()
) -> list[tuple[Device, ...]]:
    """Return the sets of devices that must be on one machine each, without those in ``taken``."""
    found: list[dict[int, Device]] = []
    already = set(taken)
    for devices in processes:
        one = {d.index: d for d in devices if d.index not in already}
        for other in [other for other in found if other.keys() & one.keys()]:
            found.remove(other)
            one |= other
        if one:
            found.append(one)
    return [tuple(one[index] for index in sorted(one)) for one in sorted(found, key=min)]


def wanted(devices: Sequence[Device], resources: Mapping[str, str]) -> dict[str, float]:
    """Return what Ray is asked for, for devices of one machine, by Ray's names."""
    wants: dict[str, float] = {}
    for device in devices:
        usual = "CPU" if device.torch_name == "cpu" else "GPU"
        name = resources.get(device.kind, usual)
        wants[name] = wants.get(name, 0) + 1
        if device.node:
            wants[device.node] = _TOUCH
    return wants


def _numbers(devices: Iterable[Device]) -> set[int]:
    return {device.index for device in devices}


def _refuse_impossible(bundles: Sequence[_Bundle]) -> None:
    """Refuse what no waiting brings: machines that are too few or too small, or have no label."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    labels = {device.node for bundle in bundles for device in bundle.devices} - {""}
    for label in sorted(labels):
        if not any(label in node for node in nodes):
            known = sorted({name for node in nodes for name in node if name in real(node)})
            raise RequestError(
                f"no machine of the Ray cluster belongs to the node group {label!r}: none has a "
                f"custom resource of that name.{did_you_mean(label, known)} Start its machines "
                f"with  ray start --address=HEAD:6379 --resources='{{\"{label}\": 1}}'"
            )
    for label in sorted(labels) or [""]:
        there = [node for node in nodes if not label or label in node]
        of_label = [b for b in bundles if b.devices[0].node == label]
        for name, needed in _total(of_label).items():
            has = sum(node.get(name, 0) for node in there)
            largest = max((node.get(name, 0) for node in there), default=0)
            most = max(bundle.wants.get(name, 0) for bundle in of_label)
            where = f"the machines of the node group {label!r}" if label else "the Ray cluster"
            have = "have" if label else "has"
            if needed > has:
                raise RequestError(
                    f"the run needs {needed:g} {name}, and {where} {have} {has:g}. Ask for fewer "
                    "devices in cluster.devices, or start more machines"
                )
            if most > largest:
                raise RequestError(
                    f"{most:g} {name} have to be on one machine, because some process has several "
                    f"of them, and the largest of {where} has {largest:g}. Use more processes with "
                    "fewer devices each in placement"
                )


def _total(bundles: Iterable[_Bundle]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, number in bundle.wants.items():
            if number != _TOUCH:
                total[name] = total.get(name, 0) + number
    return total


def real(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources without those by which Ray names nodes, and without memory."""
    hidden = ("node:", "memory", "object_store_memory", "accelerator_type:", "bundle_")
    return {
        name: number
        for name, number in resources.items()
        if not name.startswith(hidden) and "_group_" not in name
    }


def shown(resources: Mapping[str, float]) -> str:
    """Return resources for people."""
    return ", ".join(f"{number:g} {name}" for name, number in sorted(resources.items()))
