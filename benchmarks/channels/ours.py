"""Channels of the runtime ``processes``, and beside each exchange one copy of the same array."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from benchmarks.channels import latency, median, sizes
from rlinf_core.protocols.runtime import Channel, WorkerSpec
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.runtime.worker import Worker


class Partner(Worker):
    """One end of an exchange. An array is put only when the reader waits for it."""

    def give(self, size: int, count: int, there: Channel, back: Channel) -> list[list[int]]:
        """Put arrays; return when each was put, and the nanoseconds of each copy."""
        item, other = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        put, copied = [], []
        for _ in range(count):
            began = time.monotonic_ns()
            other[:] = item
            copied.append(time.monotonic_ns() - began)
            put.append(time.monotonic_ns())
            there.put(item)
            back.get()
        return [put, copied]

    def take(self, count: int, there: Channel, back: Channel) -> list[int]:
        """Get arrays; return when each was there."""
        got = []
        for _ in range(count):
            item = there.get()
            got.append(time.monotonic_ns())
            del item  # or its memory could not be used for the next
            back.put(None)
        return got


def main(quick: bool) -> None:
    """Print the medians by size, of exchanges and of copies."""
    runtime = ProcessRuntime()
    found: dict[str, dict[str, float]] = {"exchange": {}, "copy": {}}
    try:
        giver, taker = (
            runtime.launch(WorkerSpec(name, "benchmarks.channels.ours:Partner"))
            for name in ("giver", "taker")
        )
        there, back = runtime.channel("there"), runtime.channel("back")
        for name, (size, count) in sizes(quick).items():
            gave = giver.call("give", size, count, there, back)
            taken = taker.call("take", count, there, back)
            put, copied = gave.wait()[0]
            found["exchange"][name] = latency(put, taken.wait()[0])
            found["copy"][name] = median(copied)
    finally:
        runtime.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main("--quick" in sys.argv)
