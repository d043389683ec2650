"""Kill random processes of runs, and see that each run goes on as declared or ends in order.

    python scripts/chaos [N] [--runtimes inline,processes] [--seed 0] [--json]

Runs of a world of a few numbers train beside each other. Every second or so one of their processes,
the driver included, is killed or stopped. Then the run has to go on, or to end with one typed
error; after every end nothing may be left: no process, no shared memory, no temporary file, no
checkpoint that cannot be read. The next run resumes it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from lane import Kill, Lane

from rlinf_core.plugins.manager import PluginManager
from rlinf_core.specs import Kind


def main() -> int:
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="rlinf-chaos-"))
    print(f"seed {asked.seed}, {asked.kills} kills, runs below {folder}", file=sys.stderr)
    began = time.monotonic()
    kills = _suffer(asked, folder)
    problems = [kill for kill in kills if kill.problem]
    if not problems:
        shutil.rmtree(folder, ignore_errors=True)
    report = {
        "schema_version": 1,
        "seed": asked.seed,
        "kills": len(kills),
        "seconds": round(time.monotonic() - began, 1),
        "outcomes": _table(kills),
        "problems": [kill.as_json() for kill in problems],
    }
    if asked.json:
        print(json.dumps(report, indent=2))
    else:
        _show(report)
    return 1 if problems or len(kills) < asked.kills else 0


def _arguments() -> argparse.Namespace:
    there = sorted(c.spec.name for c in PluginManager().registry.components(Kind.RUNTIME))
    parser = argparse.ArgumentParser(prog="chaos", description="Kill random processes of runs.")
    parser.add_argument("kills", nargs="?", type=int, default=200)
    parser.add_argument("--runtimes", default=",".join(there), help=f"of {', '.join(there)}")
    parser.add_argument("--seed", type=int, default=int(time.monotonic_ns() % 10**6))
    parser.add_argument("--lanes", type=int, default=2, help="runs beside each other")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _suffer(asked: argparse.Namespace, folder: Path) -> list[Kill]:
    """Deal the kills to lanes, ``lanes`` of which run at a time; return what came of them."""
    names = asked.runtimes.split(",")
    count = max(len(names), asked.lanes)
    lanes = [
        Lane(folder / f"{n}", names[n % len(names)], f"{asked.seed}/{n}") for n in range(count)
    ]
    shares = [asked.kills * (n + 1) // count - asked.kills * n // count for n in range(count)]
    room = threading.Semaphore(asked.lanes)

    def run(lane: Lane, share: int) -> None:
        with room:
            lane.suffer(share)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(lanes, shares, strict=True)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for lane in lanes:
            lane.stop()
    return [kill for lane in lanes for kill in lane.kills]


def _table(kills: list[Kill]) -> dict[str, dict[str, int]]:
    """Return how often each kind of kill ended how."""
    table: dict[str, Counter[str]] = {}
    for kill in kills:
        row = table.setdefault(f"{kill.runtime}: {kill.signal} {kill.victim}", Counter())
        row[(kill.problem and "PROBLEM") or kill.outcome] += 1
    return {name: dict(table[name]) for name in sorted(table)}


def _show(report: dict) -> None:
    outcomes = sorted({outcome for row in report["outcomes"].values() for outcome in row})
    width = max(map(len, report["outcomes"]), default=0)
    print(" " * width, *outcomes, sep="  ")
    for name, row in report["outcomes"].items():
        cells = [f"{row.get(outcome, ''):>{len(outcome)}}" for outcome in outcomes]
        print(f"{name:<{width}}", *cells, sep="  ")
    for problem in report["problems"]:
        print(f"\nPROBLEM {json.dumps(problem, indent=2)}")
    print(
        f"{report['kills']} kills in {report['seconds']:.0f} s, "
        f"{len(report['problems'])} problems (seed {report['seed']})"
    )


if __name__ == "__main__":
    sys.exit(main())
