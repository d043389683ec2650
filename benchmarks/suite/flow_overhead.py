"""What workers, calls and channels cost where nothing runs side by side: the quick start, inline.

The other contestant calls the same parts, one after the other, in a plain loop
(``benchmarks/plain.py``). Both give the same numbers to the bit, which is checked.
"""

from __future__ import annotations

import sys

from benchmarks.bench import Bench, run_json

NOTE = (
    "The same simulator, engine, trajectory builder, training backend and algorithm, called by a "
    "flow of workers and channels or by a plain loop. Both take turns in one process, iteration "
    "by iteration; their metrics and weights were equal to the bit."
)


def measure(quick: bool) -> Bench:
    """Measure both, in turn."""
    iterations = 2 if quick else 30
    settings = {"iterations": iterations, "run": "quickstart", "note": NOTE}
    bench = Bench("flow_overhead", "Cost of the flow", quick, rounds=5, settings=settings)
    words = [sys.executable, "-m", "benchmarks.plain", "quickstart", str(iterations)]
    found = [
        bench.sample("flow and plain loop", number, lambda: run_json(words))
        for number in range(bench.rounds)
    ]
    bench.compare(
        "an iteration of the quick start, inline", "s", [each and each["flow"] for each in found],
        "a plain loop", [each and each["plain"] for each in found], at_most=1.03,
    )  # fmt: skip
    return bench
