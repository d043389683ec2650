"""How long ``rlinf plugins list`` takes with 50 more plugins than are installed here.

Each is a distribution of its own, with metadata, entry point and a module that registers one
component, in a folder on the path. "Cold" is a new process; modules are compiled before the first
round, as they are by an installer.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import BUILD, ROOT, Bench, Failed, wall

LIMIT = 0.25  # seconds


def measure(quick: bool) -> Bench:
    """Measure the listing and a Python that does nothing, in turn."""
    count = 5 if quick else 50
    bench = Bench("listing", "Listing plugins", quick, rounds=20, settings={"distributions": count})
    site = make_site(BUILD / f"site-{count}", count)
    # Console scripts isolate nothing: PYTHONPATH counts, for both.
    command: list[str | Path] = [Path(sys.executable).with_name("rlinf"), "plugins", "list"]
    if not Path(command[0]).exists():
        raise Failed(f"{command[0]} is missing; install rlinf-core into this environment")
    nothing = [sys.executable, "-c", "pass"]
    for unmeasured in (command, nothing):
        wall(unmeasured, PYTHONPATH=str(site))
    ours, bare = [], []
    for number in range(bench.rounds):
        ours.append(
            bench.sample("rlinf plugins list", number, lambda: wall(command, PYTHONPATH=str(site)))
        )
        bare.append(
            bench.sample("python -c pass", number, lambda: wall(nothing, PYTHONPATH=str(site)))
        )
    what = f"rlinf plugins list, {count} more plugins"
    bench.compare(what, "s", ours, "python -c pass", bare, at_most=8.0)
    bench.compare(
        what, "s", ours, "a limit: 250 ms", [LIMIT] * len(ours), at_most=1.0,
        note="an absolute time; depends on the machine",
    )  # fmt: skip
    return bench


def make_site(folder: Path, count: int) -> Path:
    """Install ``count`` plugins into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    site = _factory().Site(folder)
    for number in range(count):
        site.add(f"rlinf-plugin-dummy-{number:02}", provides=f"dummy-{number:02}")
    return folder


def _factory() -> Any:
    """Return the module that makes distributions for the tests."""
    path = ROOT / "tests" / "distributions" / "factory.py"
    spec = importlib.util.spec_from_file_location("benchmarks_distributions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
