"""Times one contestant beside the yardstick: ``python -m benchmarks.kernels.run MODULE [--quick]``.

Both take turns, a few milliseconds each, on one thread, in one process; a ratio is of neighbours.
What is timed is first compared with the yardstick.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels import cases, lean

SLICE = 0.005  # seconds that one sample takes at least
SAMPLES = 25  # of a case
ENOUGH = 5.0  # seconds after which a slow case has no more than it has, and at least three


def main() -> None:
    """Print case to seconds of a call, ours and the yardstick's, and the median ratio."""
    module = importlib.import_module(f"benchmarks.kernels.{sys.argv[1]}")
    quick = "--quick" in sys.argv
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    found: dict[str, Any] = {}
    for case, make in module.FUNCTIONS.items():
        name = case.partition(",")[0]
        for size in cases.CASES[name]:
            if size not in getattr(module, "SIZES", cases.SIZES):
                continue
            if (name, size) in getattr(module, "SKIPPED", ()):
                continue
            given = cases.inputs(size, (20, 8) if quick else None)
            if quick and name == "grpo":
                given = cases.inputs(size, (16, 20))
            mine, its = make(given), lean.FUNCTIONS[name](given)
            for backward in (False, True) if name in cases.BACKWARD else (False,):
                if name not in getattr(module, "DIFFERENT", ()):
                    _agree(f"{case}/{size}", mine(backward), its(backward))
                key = f"{case}/{size}/{'backward' if backward else 'forward'}"
                found[key] = _time(mine, its, backward, 2 if quick else SAMPLES)
    print(json.dumps(found))


def _agree(what: str, mine: Any, its: Any) -> None:
    mine = mine.detach().numpy() if hasattr(mine, "detach") else np.asarray(mine)
    if not np.allclose(mine, its, rtol=1e-3, atol=1e-5):
        worst = float(np.abs(np.asarray(mine) - its).max())
        raise SystemExit(f"{what} is not what the yardstick gives; largest difference {worst}")


def _time(
    mine: Callable[[bool], Any], its: Callable[[bool], Any], backward: bool, samples: int
) -> dict[str, float]:
    repeats = [_repeats(call, backward) for call in (mine, its)]
    ours, lean_, ratios = [], [], []
    end = time.perf_counter() + ENOUGH
    for number in range(samples):
        if number >= 3 and time.perf_counter() > end:
            break
        a = _seconds(mine, backward, repeats[0])
        b = _seconds(its, backward, repeats[1])
        ours.append(a)
        lean_.append(b)
        ratios.append(a / b)
    return {
        "seconds": statistics.median(ours),
        "lean_seconds": statistics.median(lean_),
        "ratio": statistics.median(ratios),
    }


def _repeats(call: Callable[[bool], Any], backward: bool) -> int:
    call(backward)
    once = _seconds(call, backward, 1)
    return max(1, int(SLICE / max(once, 1e-7)))


def _seconds(call: Callable[[bool], Any], backward: bool, repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call(backward)
    return (time.perf_counter() - began) / repeats


if __name__ == "__main__":
    main()
