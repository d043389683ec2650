"""Torch's own shared memory: tensors through a queue of torch.multiprocessing, then copied."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.multiprocessing as mp

from benchmarks.weights import median, shapes, updates


def receive(quick: bool, queue: Any, back: Any) -> None:
    """Copy what comes into parameters of one's own."""
    torch.set_num_threads(1)
    held = {name: torch.zeros(shape) for name, shape in shapes(quick).items()}
    ended = []
    for _ in range(updates(quick)):
        back.put(None)
        update = queue.get()
        for name, tensor in update.items():
            held[name].copy_(tensor)
        ended.append(time.monotonic_ns())
        del update, tensor
    back.put(ended)


def main(quick: bool) -> None:
    """Print the median of an update."""
    torch.set_num_threads(1)
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(quick, queue, back))
    process.start()
    held = {name: torch.zeros(shape) for name, shape in shapes(quick).items()}
    began = []
    for _ in range(updates(quick)):
        for tensor in held.values():
            tensor += 1
        back.get()
        began.append(time.monotonic_ns())
        queue.put({name: tensor.clone() for name, tensor in held.items()})  # training goes on
    print(json.dumps(median(began, back.get())), flush=True)
    process.join()


if __name__ == "__main__":
    main("--quick" in sys.argv)
