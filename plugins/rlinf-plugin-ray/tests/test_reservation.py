"""Which devices must be on one machine, what Ray is asked for, and what workers are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rlinf_plugin_ray import failures, reservation
from rlinf_plugin_ray.reservation import Reservation, islands, wanted

from rlinf_core.api import Device, ProcessPlace, RequestError, RuntimeFailure


def gpus(*numbers: int, node: str = "") -> tuple[Device, ...]:
    return tuple(Device("cuda", n, n, f"cuda:{n}", node) for n in numbers)


def slots(*numbers: int, node: str = "") -> tuple[Device, ...]:
    return tuple(Device("cpu", n, n, "cpu", node) for n in numbers)


def numbers(found: list[tuple[Device, ...]]) -> list[tuple[int, ...]]:
    return [tuple(device.index for device in devices) for devices in found]


def test_devices_that_a_process_has_together_are_on_one_machine() -> None:
    processes = [gpus(0), gpus(1), gpus(2, 3), gpus(3, 4), gpus(5)]
    assert numbers(islands(processes)) == [(0,), (1,), (2, 3, 4), (5,)]
    assert numbers(islands([gpus(0), gpus(1), gpus(2), gpus(0, 1, 2)])) == [(0, 1, 2)]
    assert numbers(islands(processes, taken=[0, 3])) == [(1,), (2,), (4,), (5,)]


def test_ray_is_asked_for_cpus_gpus_and_what_the_options_name() -> None:
    assert wanted(slots(0, 1), {}) == {"CPU": 2}
    assert wanted(gpus(0, 1, 2), {}) == {"GPU": 3}
    cards = (Device("ascend", 0, 0, "npu:0"), Device("ascend", 1, 1, "npu:1"))
    assert wanted(cards, {"ascend": "NPU"}) == {"NPU": 2}
    assert wanted(gpus(0, node="left"), {}) == {"GPU": 1, "left": 0.001}


class FakeRay:
    """Two machines of four GPUs each, the second of the node group "left"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bundles: list[list[dict[str, float]]] = []
        self.ready, self.removed = True, 0
        cluster = [{"GPU": 4.0, "CPU": 8.0}, {"GPU": 4.0, "CPU": 8.0, "left": 1.0}]
        nodes = [{"Alive": True, "Resources": node} for node in cluster]
        self.ids = {0: ("2", "0"), 1: ("1",)}  # of the accelerators of each bundle
        monkeypatch.setattr(reservation, "placement_group", self.reserve)
        monkeypatch.setattr(reservation, "table", lambda group: group.table)
        monkeypatch.setattr(reservation, "remove_placement_group", self.remove)
        monkeypatch.setattr(
            reservation, "PlacementGroupSchedulingStrategy", lambda group, number: number
        )
        monkeypatch.setattr(reservation.ray, "nodes", lambda: nodes)
        monkeypatch.setattr(reservation.ray, "available_resources", lambda: {"GPU": 1.0})
        monkeypatch.setattr(Reservation, "_ask_for_ids", self.ask)

    def reserve(self, bundles: list[dict[str, float]], strategy: str) -> Any:
        self.bundles.append(bundles)
        nodes = {number: f"node {number}" for number in range(len(bundles))}
        table = {"bundles_to_node_id": nodes}
        return SimpleNamespace(wait=lambda seconds: self.ready, table=table)

    def remove(self, group: Any) -> None:
        self.removed += 1

    def ask(self, bundles: list[Any]) -> None:
        for bundle in bundles:
            bundle.ids, bundle.variable = self.ids[bundle.strategy], "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


def reserve(*processes: tuple[Device, ...], patience: float = 0.0) -> Reservation:
    made = Reservation({}, patience, lambda: None)
    made.take([tuple(ProcessPlace(devices) for devices in processes)])
    return made


def test_a_worker_sees_its_own_gpus_alone_whatever_they_are_called_there(fake: FakeRay) -> None:
    found = reserve(gpus(0, 1), gpus(2), gpus(1))
    assert fake.bundles == [[{"GPU": 2}, {"GPU": 1}]]
    both = found.spot(ProcessPlace(gpus(0, 1)))
    assert both.variables == {"CUDA_VISIBLE_DEVICES": "2,0"}
    assert [(d.index, d.local, d.torch_name) for d in both.devices] == [
        (0, 2, "cuda:0"),
        (1, 0, "cuda:1"),
    ]
    second = found.spot(ProcessPlace(gpus(1)))
    assert second.variables == {"CUDA_VISIBLE_DEVICES": "0"}
    assert [(d.index, d.torch_name) for d in second.devices] == [(1, "cuda:0")]
    assert found.spot(ProcessPlace(gpus(2))).variables == {"CUDA_VISIBLE_DEVICES": "1"}
    found.release()
    assert fake.removed == 1


def test_what_is_taken_is_not_taken_again(fake: FakeRay) -> None:
    found = reserve(slots(0), slots(1))
    found.take([(ProcessPlace(slots(1)),), (ProcessPlace(slots(2)),), ()])
    assert fake.bundles == [[{"CPU": 1}, {"CPU": 1}], [{"CPU": 1}]]


def test_devices_on_two_machines_are_no_place_for_one_process(fake: FakeRay) -> None:
    found = reserve(slots(0), slots(1))
    with pytest.raises(RuntimeFailure, match=r"cpu:0, cpu:1.*on several machines"):
        found.spot(ProcessPlace(slots(0, 1)))


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        ([gpus(n) for n in range(9)], "the run needs 9 GPU, and the Ray cluster has 8"),
        ([gpus(0, 1, 2, 3, 4)], "5 GPU have to be on one machine.*the largest.*has 4"),
        (
            [gpus(0, 1, 2, node="left"), gpus(3, 4, node="left")],
            "needs 5 GPU, and the machines of the node group 'left' have 4",
        ),
        ([gpus(0, node="lefd")], r"(?s)'lefd'.*Did you mean 'left'.*ray start .*\"lefd\": 1"),
    ],
)
def test_what_the_cluster_cannot_give_is_refused(
    fake: FakeRay, processes: list[tuple[Device, ...]], told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        reserve(*processes)
    assert fake.bundles == []


def test_what_others_have_is_waited_for_and_then_told(fake: FakeRay) -> None:
    fake.ready = False
    with pytest.raises(RuntimeFailure, match=r"needs 2 GPU, and after 0 s others.*free are 1 GPU"):
        reserve(gpus(0, 1))


def test_a_wait_for_devices_can_be_interrupted(fake: FakeRay) -> None:
    fake.ready = False

    def interrupted() -> None:
        raise KeyboardInterrupt

    waiting = Reservation({}, 1e6, interrupted)
    with pytest.raises(KeyboardInterrupt):
        waiting.take([(ProcessPlace(slots(0)),)])
    waiting.release()
    assert fake.removed == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("The actor is dead because its node has died. Node Id: 8a", "its machine was lost"),
        ("Worker exit type: NODE_OUT_OF_MEMORY Task was killed", "the memory of its machine"),
        ("Worker exit detail: Worker exits with an exit code 3.", "ended with status 3"),
        ("Worker exit detail: Worker unexpectedly exits with a connection error", "SIGKILL"),
        ("something that Ray says in a later version", "something that Ray says in a later"),
    ],
)
def test_ends_of_actors_are_told_in_a_sentence(said: str, told: str) -> None:
    assert told in str(failures.death(RuntimeError(said)))
