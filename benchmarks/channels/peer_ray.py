"""A call of a Ray actor that returns an array, from another actor."""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray

from benchmarks.channels import median, sizes


@ray.remote
class Giver:
    """Returns the array that it was told to make."""

    def make(self, size: int) -> None:
        self._item = np.ones(size, np.uint8)

    def give(self) -> np.ndarray:
        return self._item


@ray.remote
class Taker:
    """Asks for it, again and again."""

    def take(self, giver: ray.actor.ActorHandle, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            began = time.monotonic_ns()
            item = ray.get(giver.give.remote())
            taken.append(time.monotonic_ns() - began)
            del item
        return taken


def main(quick: bool) -> None:
    """Print the medians by size."""
    ray.init(include_dashboard=False, logging_level="ERROR", num_cpus=2)
    giver, taker = Giver.remote(), Taker.remote()
    found = {}
    for name, (size, count) in sizes(quick).items():
        ray.get(giver.make.remote(size))
        found[name] = median(ray.get(taker.take.remote(giver, count)))
    ray.shutdown()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main("--quick" in sys.argv)
