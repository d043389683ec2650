"""New weights from a learner's process to an actor's, against one copy and against peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, run_json
from benchmarks.environments import python
from benchmarks.weights import MIB, adapted, shapes

PEERS = {
    "ray": "the object store: put, get, copied into place",
    "torch": "torch.multiprocessing's queue, copied into place",
}

AIMS = {"full": None, "bucketed": 0.6, "bucketed, gloo": None, "changed": None}
"""Case to the least share of a plain copy's bandwidth that is aimed at."""

NOTE = (
    "Until the last parameter is in its place at the other end, which is checked by a checksum. A "
    "copy is that of all parameters within one process, in memory that was used before, measured "
    "between updates. Both ends change memory twice: a share of 1 is what a pipe without any "
    "cost could reach. `changed` compares with what was sent last."
)


def measure(quick: bool) -> Bench:
    """Time ours, then each peer, round by round."""
    some = sum(_size(shapes(quick)[name]) for name in adapted(quick))
    settings = {"mib": MIB, "adapted_mib": some / (1 << 20), "note": NOTE}
    bench = Bench("weights", "Sending weights", quick, rounds=5, settings=settings)
    options = ["--quick"] if quick else []

    def timed(interpreter: Path | str, module: str) -> Any:
        return run_json([interpreter, "-m", f"benchmarks.weights.{module}", *options], timeout=300)

    ours: list[dict[str, Any]] = []
    peers: dict[str, list[float | None]] = {name: [] for name in PEERS}
    for number in range(bench.rounds):
        ours.append(bench.sample("rlinf-core", number, lambda: timed(sys.executable, "ours")))
        for name, found in peers.items():

            def peer(name: str = name) -> Any:
                interpreter = sys.executable if name == "torch" else python(name, bench)
                return timed(interpreter, f"peer_{name}")

            found.append(bench.sample(name, number, peer))

    total = sum(map(_size, shapes(quick).values())) / (1 << 20)
    for case, aim in AIMS.items():
        rates = [total / each["update"][case] for each in ours]
        copies = [total / each["copy"][case] for each in ours]
        bench.compare(f"`{case}`", "MiB/s", rates, "one copy", copies, at_least=aim)
    for case, other in (("bucketed, to bfloat16", "bucketed"), ("changed, 1%", "full")):
        mine, theirs = ([1e3 * each["update"][name] for each in ours] for name in (case, other))
        bench.compare(f"an update, `{case}`", "ms", mine, f"`{other}`", theirs)
    for name, samples in peers.items():
        mine = [1e3 * each["update"]["bucketed"] for each in ours]
        theirs = [seconds and 1e3 * seconds for seconds in samples]
        what = f"{name}: {PEERS[name]}"
        bench.compare("an update, `bucketed`", "ms", mine, what, theirs, at_most=1.0)
    return bench


def _size(shape: tuple[int, ...]) -> int:
    size = 4
    for length in shape:
        size *= length
    return size
