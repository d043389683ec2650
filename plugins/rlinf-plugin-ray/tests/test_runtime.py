"""What the contract does not ask: environments, ends, last lines, and what is left in a cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.util.placement_group import placement_group_table
from rlinf_plugin_ray.config import RayConfig
from rlinf_plugin_ray.runtime import RayRuntime

from rlinf_core.api import (
    Device,
    Kind,
    PluginError,
    ProcessPlace,
    RequestError,
    RuntimeFailure,
    WorkerDied,
    WorkerFailed,
    WorkerSpec,
)
from rlinf_core.plugins.manager import PluginManager

WITHIN = 10.0  # seconds
pytestmark = pytest.mark.usefixtures("head")


@pytest.fixture
def runtime() -> Iterator[RayRuntime]:
    made = RayRuntime(RayConfig())
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(head: Any) -> Iterator[RayRuntime]:
    made = RayRuntime(RayConfig())
    yield made
    made.close()


def launch(runtime: RayRuntime, name: str, processes: int = 1, **options: Any) -> Any:
    placement = options.pop("placement", ())
    return runtime.launch(WorkerSpec(name, "ray_test_workers:Odd", **options), processes, placement)


def placed(*devices: Device, **environment: str) -> tuple[ProcessPlace, ...]:
    return (ProcessPlace(devices, environment),)


SLOT = Device("cpu", 0, 0, "cpu")

# --- environments and components ------------------------------------------------------------------


def test_a_node_groups_variables_are_there_and_its_label_is_where_ray_says(
    shared: RayRuntime,
) -> None:
    place = placed(replace(SLOT, node="left"), RLINF_TEST_COLOUR="red", OMP_NUM_THREADS="2")
    group = launch(shared, "coloured", placement=place)
    assert group.call("variables", "RLINF_TEST_COLOUR").wait() == [["red"]]
    assert group.call("threads").wait() == [2]


def test_case_r01_a_variable_of_200_kb_does_not_stop_the_start(shared: RayRuntime) -> None:
    long = "x" * 200_000
    group = launch(shared, "long", placement=placed(replace(SLOT, index=1), RLINF_TEST_LONG=long))
    assert group.call("variables", "RLINF_TEST_LONG").wait() == [[long]]


def test_case_p05_a_component_of_a_plugin_is_found_in_a_ray_worker(shared: RayRuntime) -> None:
    registry = PluginManager().registry
    ref = registry.ref(registry.component(Kind.ALGORITHM, "ppo"))
    assert ref.distribution == "rlinf-plugin-ppo"
    assert launch(shared, "finder").call("resolve", ref).wait() == ["PPO"]


def test_case_p05_a_ray_worker_refuses_another_version_than_the_drivers(
    runtime: RayRuntime,
) -> None:
    registry = PluginManager().registry
    ref = registry.ref(registry.component(Kind.ALGORITHM, "ppo"))
    with pytest.raises(WorkerFailed, match="Install the same version everywhere") as caught:
        launch(runtime, "finder").call("resolve", replace(ref, version="9.9")).wait()
    assert isinstance(caught.value.cause, PluginError)
    assert caught.value.exit_code == 2


def test_what_is_got_from_a_channel_can_be_written_to(shared: RayRuntime) -> None:
    channel = shared.channel("own")
    group = launch(shared, "writers", 2)
    for size in (8, 100_000):
        group.call("put", channel, size, ranks=[0])
        assert group.call("write_to", channel, ranks=[1]).wait()[1] == [2.0 * size, 2.0 * size]
    channel.put(np.zeros(100_000))
    channel.get()[:] = 1


# --- failures -------------------------------------------------------------------------------------


def test_case_r02_a_killed_worker_is_named_with_what_it_said_last(runtime: RayRuntime) -> None:
    group = launch(runtime, "victim")
    group.call("say", "to the output", "to the error").wait()
    (pid,) = group.call("pid").wait()
    sleeping = group.call("sleep", 60)
    time.sleep(0.2)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match=r"victim\[0\]\.sleep failed: WorkerDied") as caught:
        sleeping.wait()
    assert time.monotonic() - began < WITHIN
    assert isinstance(caught.value.cause, WorkerDied)
    assert "ray" not in type(caught.value.cause).__module__
    assert "to the output" in caught.value.log
    assert "to the error" in caught.value.log
    assert ":actor_name:" not in caught.value.log


def test_case_r02_the_death_of_an_idle_worker_is_noticed(runtime: RayRuntime) -> None:
    idle, other = launch(runtime, "idle"), launch(runtime, "other")
    (pid,) = idle.call("pid").wait()
    other.call("pid").wait()
    waiting = other.call("sleep", 60)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match=r"idle\[0\]\.idle failed: WorkerDied"):
        waiting.wait()
    assert time.monotonic() - began < WITHIN


def test_a_worker_that_ends_by_itself_is_told_with_what_it_said_last(runtime: RayRuntime) -> None:
    with pytest.raises(WorkerFailed, match="ended without a word") as caught:
        launch(runtime, "quitter").call("leave", 3).wait()
    assert "leaving with 3" in caught.value.log


def test_case_r01_a_worker_that_crashes_when_it_is_made_is_named(runtime: RayRuntime) -> None:
    group = launch(runtime, "crasher", arguments={"crash": True})
    began = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"crasher\[0\]\.start failed: WorkerDied") as caught:
        group.call("pid").wait()
    assert time.monotonic() - began < WITHIN + 10  # its imports come first
    assert "about to crash" in caught.value.log


def test_rays_own_errors_come_as_a_workers_failure(runtime: RayRuntime) -> None:
    with pytest.raises(WorkerFailed, match="GetTimeoutError") as caught:
        launch(runtime, "loser").call("lose").wait()
    assert type(caught.value.cause) is RuntimeFailure


def test_the_end_of_the_board_ends_the_run(runtime: RayRuntime) -> None:
    group = launch(runtime, "group")
    reading = group.call("put", runtime.channel("channel"), 8)
    reading.wait()
    waiting = group.call("write_to", runtime.channel("empty"))
    ray.kill(runtime._board)
    with pytest.raises(RuntimeFailure, match="the board, the actor that keeps channels and leases"):
        waiting.wait()


# --- devices --------------------------------------------------------------------------------------


def test_more_than_the_cluster_has_is_refused_before_anything_starts(runtime: RayRuntime) -> None:
    devices = tuple(Device("cpu", n, n, "cpu") for n in range(65))
    with pytest.raises(RequestError, match="needs 65 CPU, and the Ray cluster has 64"):
        runtime.reserve([(ProcessPlace(devices),)])
    with pytest.raises(RequestError, match=r"(?s)'right'.*ray start .*\"right\": 1"):
        launch(runtime, "nowhere", placement=placed(replace(SLOT, node="right")))


def test_two_runs_do_not_share_a_device_by_accident(head: Any) -> None:
    many = tuple(Device("cpu", n, n, "cpu") for n in range(40))
    first, second, third = (RayRuntime(RayConfig(patience=s)) for s in (0.2, 0.2, 60.0))
    try:
        first.reserve([(ProcessPlace(many),)])
        with pytest.raises(RuntimeFailure, match="needs 40 CPU, and after 0.2 s others still have"):
            second.reserve([(ProcessPlace(many),)])
        first.close()
        second.close()
        third.reserve([(ProcessPlace(many),)])
    finally:
        for made in (first, second, third):
            made.close()


# --- what is left ---------------------------------------------------------------------------------


def test_a_cluster_that_was_there_is_left_as_it_was(head: Any) -> None:
    before, groups = ray.cluster_resources(), set(placement_group_table())
    made = RayRuntime(RayConfig())
    group = launch(made, "guest", placement=placed(SLOT))
    (pid,) = group.call("pid").wait()
    made.channel("full").put(np.zeros(100_000))
    assert _states(groups) == ["CREATED"]
    made.close()
    assert ray.is_initialized()
    until = time.monotonic() + WITHIN
    while Path(f"/proc/{pid}").exists() or _states(groups) != ["REMOVED"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert ray.cluster_resources() == before
    with pytest.raises(RuntimeFailure, match="closed"):
        launch(made, "late")


def _states(before: set[str]) -> list[str]:
    """Return the states of the reservations that were made since."""
    return [group["state"] for name, group in placement_group_table().items() if name not in before]
