"""Ray's object store: parameters put by one actor, got and copied by another."""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray

from benchmarks.weights import median, shapes, updates


@ray.remote
class Source:
    """Puts its parameters."""

    def make(self, quick: bool) -> None:
        self._held = {name: np.zeros(shape, np.float32) for name, shape in shapes(quick).items()}

    def change(self) -> None:
        for array in self._held.values():
            array += 1

    def send(self) -> list:
        return [time.monotonic_ns(), ray.put(self._held)]


@ray.remote
class Target:
    """Gets them and copies them into its own."""

    def make(self, quick: bool) -> None:
        self._held = {name: np.zeros(shape, np.float32) for name, shape in shapes(quick).items()}

    def receive(self, source: ray.actor.ActorHandle) -> list[int]:
        began, reference = ray.get(source.send.remote())
        update = ray.get(reference)
        for name, array in update.items():
            self._held[name][:] = array
        return [began, time.monotonic_ns()]


def main(quick: bool) -> None:
    """Print the median of an update."""
    ray.init(include_dashboard=False, logging_level="ERROR", num_cpus=2,
             object_store_memory=2 << 30)  # fmt: skip
    source, target = Source.remote(), Target.remote()
    ray.get([source.make.remote(quick), target.make.remote(quick)])
    began, ended = [], []
    for _ in range(updates(quick)):
        ray.get(source.change.remote())
        begin, end = ray.get(target.receive.remote(source))
        began.append(begin)
        ended.append(end)
    ray.shutdown()
    print(json.dumps(median(began, ended)), flush=True)


if __name__ == "__main__":
    main("--quick" in sys.argv)
