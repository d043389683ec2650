"""From ``put`` in one worker's process to ``get`` in another's, for small and large arrays.

The limit of a large one is a single copy of it. What is small has none that means anything, but a
time that a step of a simulator can afford.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, run_json
from benchmarks.channels import SIZES
from benchmarks.environments import python

LIMIT = 0.2e-3  # seconds, of the smallest
SMALLEST, *_, LARGEST = SIZES

PEERS = {"rlinf": "its channel", "ray": "an actor's call and its answer"}

NOTE = (
    "The reader waits already, and what it gets is not looked at. A copy is `other[:] = array` in "
    "memory that was used before, measured beside each exchange."
)


def measure(quick: bool) -> Bench:
    """Time ours, then each peer, round by round."""
    sizes = {name: size for name, (size, _) in SIZES.items()}
    settings = {"bytes": sizes, "note": NOTE}
    bench = Bench("channel", "Handing over arrays", quick, rounds=5, settings=settings)
    options = ["--quick"] if quick else []

    def timed(interpreter: Path | str, module: str) -> Any:
        return run_json([interpreter, "-m", f"benchmarks.channels.{module}", *options], timeout=300)

    ours: list[dict[str, Any]] = []
    peers: dict[str, list[dict[str, float] | None]] = {name: [] for name in PEERS}
    for number in range(bench.rounds):
        ours.append(bench.sample("rlinf-core", number, lambda: timed(sys.executable, "ours")))
        for name, found in peers.items():
            measured = bench.sample(
                name, number, lambda n=name: timed(python(n, bench), f"peer_{n}")
            )
            found.append(measured)

    for size in SIZES:
        what, mine = f"put to get, {size}", [1e6 * each["exchange"][size] for each in ours]
        if size == SMALLEST:
            bench.compare(
                what, "µs", mine, "a limit: 200 µs", [1e6 * LIMIT] * len(mine), at_most=1.0,
                note="an absolute time; depends on the machine",
            )  # fmt: skip
        else:
            copies = [1e6 * each["copy"][size] for each in ours]
            aim = 1.3 if size == LARGEST else None
            bench.compare(what, "µs", mine, "one copy", copies, at_most=aim)
        for name, samples in peers.items():
            theirs = [each and 1e6 * each[size] for each in samples]
            aim = 1 / 20 if name == "rlinf" else None
            bench.compare(what, "µs", mine, f"{name}: {PEERS[name]}", theirs, at_most=aim)
    return bench
