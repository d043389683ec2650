"""Several Ray nodes on this machine: node groups, their machines, and one that is lost."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster
from rlinf_plugin_ray.config import RayConfig
from rlinf_plugin_ray.runtime import RayRuntime

from rlinf_core.api import Device, GroupPlace, ProcessPlace, WorkerDied, WorkerFailed, WorkerSpec

WITHIN = 10.0  # seconds
HERE = str(Path(__file__).parent)  # where actors find the workers of these tests


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without labels, and a machine for each of two node groups."""
    health = {  # as soon as a person would like to know; Ray's own is half a minute
        "health_check_initial_delay_ms": 500,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
        "health_check_timeout_ms": 500,
    }
    with (
        tempfile.TemporaryDirectory(prefix="rlinf-ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", HERE)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 2, "temp_dir": folder, "_system_config": health}
        made = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
        for label in ("left", "right"):
            made.add_node(num_cpus=2, resources={label: 1})
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
        made.shutdown()


@pytest.fixture
def runtime(cluster: Cluster) -> Iterator[RayRuntime]:
    made = RayRuntime(RayConfig())
    yield made
    made.close()
    assert not ray.is_initialized()


def on(label: str, first: int, **environment: str) -> GroupPlace:
    """Return a process on each of two devices of a node group."""
    return tuple(
        ProcessPlace((Device("cpu", first + n, n, "cpu", label),), environment) for n in range(2)
    )


def launch(runtime: RayRuntime, name: str, place: GroupPlace) -> Any:
    return runtime.launch(WorkerSpec(name, "ray_test_workers:Odd"), placement=place)


def test_node_groups_are_machines_with_variables_of_their_own(runtime: RayRuntime) -> None:
    left, right = on("left", 0, RLINF_TEST_SIDE="l"), on("right", 2, RLINF_TEST_SIDE="r")
    runtime.reserve([left, right])
    groups = {"left": launch(runtime, "one", left), "right": launch(runtime, "other", right)}
    labels = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    for label, group in groups.items():
        (node, same) = group.call("node").wait()
        assert node == same
        assert label in labels[node]
        assert group.call("variables", "RLINF_TEST_SIDE").wait() == [[label[0]]] * 2
    # A large item goes from one machine's memory to the other's, and its spans share a clock.
    runtime.spans()
    channel = runtime.channel("across")
    groups["left"].call("put", channel, 100_000, ranks=[0])
    assert groups["right"].call("write_to", channel, ranks=[1]).wait()[1] == [200_000.0] * 2
    channel.put(np.arange(100_000))
    assert groups["left"].call("total", channel, ranks=[1]).wait()[1] == sum(range(100_000))
    now = time.monotonic_ns()
    assert all(now - 60e9 < span.began <= span.ended <= now + 1e9 for span in runtime.spans())


def test_a_node_group_may_have_a_python_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nRLINF_TEST_PYTHON=own exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    runtime = RayRuntime(RayConfig(interpreters={"right": str(script)}))
    try:
        asked = [launch(runtime, label, on(label, n)) for n, label in ((0, "left"), (2, "right"))]
        told = [group.call("variables", "RLINF_TEST_PYTHON", ranks=[0]) for group in asked]
        assert [future.wait()[0] for future in told] == [[None], ["own"]]
    finally:
        runtime.close()


def test_the_loss_of_a_machine_is_a_typed_error(cluster: Cluster, runtime: RayRuntime) -> None:
    lost = cluster.add_node(num_cpus=2, resources={"lost": 1})
    group = launch(runtime, "group", on("lost", 0))
    group.call("say", "hello").wait()
    sleeping = group.call("sleep", 60, ranks=[1])
    time.sleep(0.3)
    began = time.monotonic()
    cluster.remove_node(lost, allow_graceful=False)
    with pytest.raises(WorkerFailed, match=r"group\[[01]\]\.(sleep|idle) failed") as caught:
        sleeping.wait()
    assert time.monotonic() - began < WITHIN
    assert isinstance(caught.value.cause, WorkerDied)
