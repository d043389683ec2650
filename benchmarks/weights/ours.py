"""The core's weight transports on the runtime ``processes``, and beside them plain copies."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.weights import adapted, median, shapes, updates
from rlinf_core.builtin.config import BucketedConfig, ChangedConfig, DirectConfig, WeightsConfig
from rlinf_core.builtin.direct import DirectEngine
from rlinf_core.protocols.runtime import Channel, WorkerSpec
from rlinf_core.protocols.weight_transport import Layout
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.runtime.worker import Worker
from rlinf_core.transport.weights import WeightStream

CASES: dict[str, tuple[str, Any, bool]] = {
    "full": ("FullTransport", WeightsConfig(), False),
    "bucketed": ("BucketedTransport", BucketedConfig(), False),
    "bucketed, gloo": ("BucketedTransport", BucketedConfig(way="gloo"), False),
    "bucketed, to bfloat16": ("BucketedTransport", BucketedConfig(dtype="bfloat16"), False),
    "changed": ("ChangedTransport", ChangedConfig(), False),
    "changed, 1%": ("ChangedTransport", ChangedConfig(), True),
}
"""Name to class, options, and whether only about one percent of the parameters changes."""


class Holder(nn.Module):
    """Parameters, and nothing else."""

    def __init__(self, quick: bool) -> None:
        super().__init__()
        for name, shape in shapes(quick).items():
            self.register_buffer(name, torch.zeros(shape))


class End(Worker):
    """Either end."""

    def source(
        self, case: str, quick: bool, channels: list[Channel], back: Channel
    ) -> list[list[int]]:
        """Send updates when the target waits for them; return when, and the time of a copy."""
        transport, some = self._transport(case), CASES[case][2]
        transport.open(*channels, Layout(1, "source", 0), Layout(1, "target"))
        held = Holder(quick).state_dict()
        other = {name: torch.zeros_like(tensor) for name, tensor in held.items()}
        began, copied = [], []
        for version in range(updates(quick)):
            for name in adapted(quick) if some and version else held:
                held[name] += 1
            copied.append(copy(held, other))
            back.get()
            began.append(time.monotonic_ns())
            transport.send(WeightStream.from_tensors(held, version), version)
        return [began, copied]

    def target(self, case: str, quick: bool, channels: list[Channel], back: Channel) -> list[int]:
        """Load updates; return when each was loaded."""
        transport = self._transport(case)
        transport.open(*channels, Layout(1, "source"), Layout(1, "target", 0))
        engine = DirectEngine(DirectConfig(), "cpu")
        engine.build(lambda: Holder(quick))
        ended = []
        for version in range(updates(quick)):
            back.put(None)
            transport.receive(engine)
            ended.append(time.monotonic_ns())
            wrong = [n for n, t in engine._policy.state_dict().items() if t.flatten()[-1] < 1]
            if wrong or engine.version != version:
                raise AssertionError(f"version {version} did not arrive: {wrong}")
        return ended

    @staticmethod
    def _transport(case: str) -> Any:
        name, config, _ = CASES[case]
        return getattr(importlib.import_module("rlinf_core.builtin.weights"), name)(config)


def copy(held: dict[str, Tensor], other: dict[str, Tensor]) -> int:
    """Copy every parameter within one process; return the nanoseconds."""
    began = time.monotonic_ns()
    for name, tensor in held.items():
        other[name].copy_(tensor)
    return time.monotonic_ns() - began


def main(quick: bool) -> None:
    """Print the median seconds by case, of updates and of copies."""
    runtime = ProcessRuntime()
    found: dict[str, dict[str, float]] = {"update": {}, "copy": {}}
    try:
        source, target = (
            runtime.launch(WorkerSpec(name, "benchmarks.weights.ours:End"))
            for name in ("source", "target")
        )
        for number, case in enumerate(CASES):
            channels = [runtime.channel(f"{number} {name}") for name in ("weights", "replies")]
            back = runtime.channel(f"{number} back")
            sent = source.call("source", case, quick, channels, back)
            received = target.call("target", case, quick, channels, back)
            began, copied = sent.wait()[0]
            found["update"][case] = median(began, received.wait()[0])
            found["copy"][case] = median([0] * len(copied), copied)
    finally:
        runtime.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main("--quick" in sys.argv)
