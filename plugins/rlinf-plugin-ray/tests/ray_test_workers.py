"""Workers of these tests, which the actors import by name."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import ray
import torch

from rlinf_core.api import Channel, ComponentRef, Place, Worker, toolkit


class Odd(Worker):
    """Does what ends badly, and tells what it sees."""

    def __init__(self, place: Place, crash: bool = False) -> None:
        super().__init__(place)
        if crash:
            print("about to crash", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        """Return the number of its process."""
        return os.getpid()

    def variables(self, *names: str) -> list[str | None]:
        """Return what its environment says."""
        return [os.environ.get(name) for name in names]

    def threads(self) -> int:
        """Return how many threads torch uses."""
        return torch.get_num_threads()

    def say(self, *lines: str) -> None:
        """Write lines to both streams."""
        print(lines[0], flush=True)
        for line in lines[1:]:
            print(line, file=sys.stderr, flush=True)

    def leave(self, status: int) -> None:
        """End the process."""
        print(f"leaving with {status}", flush=True)
        os._exit(status)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def resolve(self, ref: ComponentRef) -> str:
        """Import a component; return the name of its class."""
        return str(toolkit.resolve_ref(ref).__name__)

    def write_to(self, channel: Channel) -> list[float]:
        """Write to what it gets: it is its own."""
        item = channel.get()
        item["tensor"] += 1
        item["array"] *= 2
        return [float(item["tensor"].sum()), float(item["array"].sum())]

    def put(self, channel: Channel, size: int) -> None:
        """Put a tensor and an array."""
        channel.put({"tensor": torch.ones(size), "array": np.ones(size)})

    def total(self, channel: Channel) -> int:
        """Add up what it gets."""
        return int(channel.get().sum())

    def node(self) -> str:
        """Return Ray's name for the machine it is on."""
        return str(ray.get_runtime_context().get_node_id())

    def lose(self) -> None:
        """Run into an error of Ray's own."""
        ray.get(ray.remote(num_cpus=0)(_sleep).remote(), timeout=0.01)


def _sleep() -> None:
    time.sleep(60)
