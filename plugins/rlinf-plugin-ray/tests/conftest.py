"""One Ray for the tests of a file: none of them waits for another to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlinf_plugin_ray.cluster import Cluster
from rlinf_plugin_ray.config import RayConfig

HERE = str(Path(__file__).parent)  # where actors find the workers of these tests

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def head() -> Iterator[Cluster]:
    """A cluster of this machine alone, which every runtime that is made meanwhile joins."""
    config = RayConfig(address="local", object_store_memory=256 * 2**20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE)
        patch.setenv("RAY_AUTH_MODE", "disabled")  # other tests ask this cluster what it has
        cluster = Cluster(config, slots=64, labels=frozenset({"left"}))
    yield cluster
    cluster.close()
