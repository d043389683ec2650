"""The channel of the package rlinf, between two of its workers; it runs on Ray."""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, Worker

from benchmarks.channels import latency, sizes


class Giver(Worker):
    """Puts arrays, each when the reader waits for it."""

    def __init__(self) -> None:
        super().__init__()

    def give(self, size: int, count: int, there: Channel, back: Channel) -> list[int]:
        item, put = np.ones(size, np.uint8), []
        for _ in range(count):
            put.append(time.monotonic_ns())
            there.put(item)
            back.get()
        return put


class Taker(Worker):
    """Gets them."""

    def __init__(self) -> None:
        super().__init__()

    def take(self, count: int, there: Channel, back: Channel) -> list[int]:
        got = []
        for _ in range(count):
            item = there.get()
            got.append(time.monotonic_ns())
            del item
            back.put(0)
        return got


def main(quick: bool) -> None:
    """Print the medians by size."""
    cluster, place = Cluster(num_nodes=1), NodePlacementStrategy([0])
    giver, taker = (
        kind.create_group().launch(cluster, name=kind.__name__, placement_strategy=place)
        for kind in (Giver, Taker)
    )
    there, back = Channel.create("there"), Channel.create("back")
    found = {}
    for name, (size, count) in sizes(quick).items():
        gave, taken = giver.give(size, count, there, back), taker.take(count, there, back)
        found[name] = latency(gave.wait()[0], taken.wait()[0])
    ray.shutdown()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main("--quick" in sys.argv)
