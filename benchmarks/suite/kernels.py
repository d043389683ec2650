"""Advantages and losses against the same formulas in lean NumPy, and against peers.

Each contestant is timed beside the yardstick in its own process and environment, so what is
compared between contestants are multiples of the yardstick, not seconds of different moments.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, run_json
from benchmarks.environments import python
from benchmarks.kernels import cases

PEERS = ("torchrl", "verl", "rlinf")

NOTES = {
    ("torchrl", "gae, vectorised"): "its vectorised function",
    ("verl", "gae"): "also whitens advantages",
    ("rlinf", "gae"): "knows neither time limits nor a mask",
    ("rlinf", "value"): "also gives the explained variance",
}


def measure(quick: bool) -> Bench:
    """Time ours, then each peer, round by round."""
    settings = {"shapes": {size: list(shape) for size, shape in cases.SIZES.items()}}
    bench = Bench("kernels", "Advantages and losses", quick, rounds=5, settings=settings)
    options = ["--quick"] if quick else []

    def timed(interpreter: Path | str, module: str) -> Any:
        return run_json([interpreter, "-m", "benchmarks.kernels.run", module, *options])

    ours: list[dict[str, Any]] = []
    peers: dict[str, list[dict[str, Any] | None]] = {name: [] for name in PEERS}
    for number in range(bench.rounds):
        ours.append(bench.sample("rlinf-core", number, lambda: timed(sys.executable, "ours")))
        for name, found in peers.items():
            measured = bench.sample(
                name, number, lambda n=name: timed(python(n, bench), f"peer_{n}")
            )
            found.append(measured)

    for key in ours[0]:
        case, size, way = key.split("/")
        shape = "×".join(map(str, cases.SIZES[size]))
        passes = "forward" if way == "forward" else "forward and backward"
        what = f"{cases.TITLES[case]}, {shape}, {passes}"
        bench.compare(
            what,
            "µs",
            [1e6 * each[key]["seconds"] for each in ours],
            "lean NumPy",
            [1e6 * each[key]["lean_seconds"] for each in ours],
            at_most=1.5,
        )
        mine = [each[key]["ratio"] for each in ours]
        for name, samples in peers.items():
            known = next((each for each in samples if each), {})
            for theirs in known:
                if theirs.partition("/")[0].partition(",")[0] == case and theirs.endswith(
                    f"/{size}/{way}"
                ):
                    bench.compare(
                        what,
                        "× lean",
                        mine,
                        name,
                        [each and each[theirs]["ratio"] for each in samples],
                        note=NOTES.get((name, theirs.partition("/")[0]), ""),
                    )
    return bench
