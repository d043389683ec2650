"""Workers that ``gpu_checks.py`` starts in processes of their own, and what it does with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf_core.api import Batch, Channel, Device, ProcessPlace, Worker, WorkerSpec

ROWS = 1000


def made(device: str) -> Batch:
    """Return a batch of several dtypes on a device, the same every time."""
    numbers = torch.arange(ROWS * 7).reshape(ROWS, 7)
    return Batch(
        {
            "images": (numbers % 251).to(torch.uint8),
            "state": (numbers / 7).sin().float(),
            "half": (numbers / 3).cos().to(torch.bfloat16),
            "turned": (numbers.t() / 5).float().t(),  # not contiguous
            "env": numbers[:, 0].contiguous(),
        }
    ).to(device)


class Maker(Worker):
    """Puts tensors of its device into a channel."""

    def put(self, channel: Channel, count: int) -> str:
        """Put the batch ``count`` times; return where it lies."""
        batch = made(self.place.torch_name)
        for _ in range(count):
            channel.put(batch)
        return str(batch["state"].device)


class Taker(Worker):
    """Compares what comes with what it should be, on its own device."""

    def get(self, channel: Channel, count: int) -> tuple[str, list[str]]:
        """Return where the batches lie that came, and the names of entries that differ."""
        wanted = made(self.place.torch_name)
        where, differ = set(), []
        for _ in range(count):
            batch = channel.get()
            where.add(str(batch["state"].device))
            moved: dict[str, Any] = dict(batch.to(self.place.torch_name).leaves())
            differ += [n for n, t in wanted.leaves() if not _same(moved[n], t)]
        return ", ".join(sorted(where)), differ


def _same(one: Tensor, other: Any) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def check_channels(device: str) -> str:
    """Send a batch from one process on the device to another, several times."""
    from rlinf_core.runtime.processes import ProcessRuntime

    name = "cpu" if device == "cpu" else f"{device}:0"
    place = (ProcessPlace((Device(device, 0, 0, name),)),)
    runtime = ProcessRuntime(None)
    try:
        channel = runtime.channel("batches")
        maker = runtime.launch(WorkerSpec("maker", "gpu_workers:Maker"), 1, place)
        taker = runtime.launch(WorkerSpec("taker", "gpu_workers:Taker"), 1, place)
        put, got = maker.call("put", channel, 5), taker.call("get", channel, 5)
        made_on, (found_on, differ) = put.wait()[0], got.wait()[0]
    finally:
        runtime.close()
    assert made_on == name, f"made on {made_on}"
    assert not differ, f"changed on the way: {sorted(set(differ))}"
    return f"made on {made_on}, arrived on {found_on}, equal"
