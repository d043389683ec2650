"""Bench: what a benchmark measures with. Rounds alternate; a round that was measured is kept.

A benchmark calls :meth:`Bench.sample` for each contestant in each round, so that contestants take
turns, and then states comparisons. Samples are kept below ``build/bench/partial`` until the result
is written: a benchmark that was interrupted goes on where it was, unless commit, settings or
machine have changed since.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
RESULTS = ROOT / "benchmarks" / "results"

SCHEMA_VERSION = 1

REPORTED = (
    "torch", "numpy", "gymnasium", "mujoco", "metaworld", "mani-skill", "stable-baselines3",
    "torchrl", "tensordict", "verl", "rlinf", "ray", "transformers", "rlinf-core",
)  # fmt: skip
"""Distributions whose versions go into a result, where they are installed."""


class Failed(Exception):
    """A contestant's process ended with an error; the message is the end of what it said."""


class Bench:
    """Samples and comparisons of one benchmark.

    Args:
        name: of its file in ``suite/``.
        title: of its part of the page.
        quick: measure as little as shows that it runs. The result goes below ``build``.
        rounds: how often every contestant is measured.
        settings: what was measured: sizes, hyperparameters, tasks; plain data.
    """

    def __init__(
        self, name: str, title: str, quick: bool, rounds: int, settings: Mapping[str, Any]
    ) -> None:
        self.name, self.title, self.quick = name, title, quick
        self.rounds = 1 if quick else rounds
        self._settings = {**settings, "rounds": self.rounds}
        self._comparisons: list[dict[str, Any]] = []
        self._absent: dict[str, str] = {}
        self._versions = {"ours": versions()}
        self._load = os.getloadavg()[0]
        self._partial = BUILD / "partial" / f"{name}{'-quick' if quick else ''}.json"
        self._key = {"commit": commit(), "settings": self._settings, "machine": machine()}
        self._samples = self._recall()

    # --- measuring -------------------------------------------------------------------------------

    def sample(self, who: str, number: int, measure: Callable[[], Any]) -> Any:
        """Return what ``measure()`` gives for a contestant in a round, or gave before.

        Returns None, now and in later rounds, where the contestant cannot be measured; the reason
        goes into the result.
        """
        key = f"{who}/{number}"
        if key in self._samples:
            return self._samples[key]
        if who in self._absent:
            return None
        print(f"[{self.name}] round {number + 1}/{self.rounds}: {who}", file=sys.stderr, flush=True)
        try:
            self._samples[key] = measure()
        except Failed as failure:
            self.absent(who, str(failure))
            return None
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        kept = {"key": self._key, "versions": self._versions, "samples": self._samples}
        write(self._partial, kept)
        return self._samples[key]

    def absent(self, who: str, reason: str) -> None:
        """Note why a contestant was not measured."""
        print(f"[{self.name}] without {who}: {reason}", file=sys.stderr, flush=True)
        # Results are published: no address of an index, no folder of this machine.
        reason = re.sub(r"\w+://\S+", "(address)", reason.replace(str(ROOT), "."))
        self._absent[who] = reason

    def installed(self, environment: str, found: Mapping[str, str]) -> None:
        """Note the versions of a peer's environment."""
        self._versions[environment] = {n: v for n, v in found.items() if n in REPORTED}

    # --- stating ---------------------------------------------------------------------------------

    def compare(
        self,
        what: str,
        unit: str,
        ours: Sequence[float | None],
        other: str,
        theirs: Sequence[float | None],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        note: str = "",
    ) -> None:
        """State our samples, another's, and their ratio in each round (ours / other's).

        Args:
            what: was measured.
            unit: of the samples.
            ours: one sample a round; None where there is none, such as a goal that was missed.
            other: a peer, or a limit.
            theirs: as ``ours``.
            at_least: the least ratio that is aimed at; or
            at_most: the most.
            note: what a reader must know to read the line rightly.
        """
        pairs = [p for p in zip(ours, theirs, strict=True) if p[0] is not None and p[1]]
        aim = {"at_least": at_least} if at_most is None else {"at_most": at_most}
        self._comparisons.append(
            {
                "what": what,
                "unit": unit,
                "ours": list(ours),
                "other": other,
                "others": list(theirs),
                "ratios": [mine / its for mine, its in pairs if mine is not None and its],
                "aim": {k: v for k, v in aim.items() if v is not None},
                "note": note,
            }
        )

    def write(self) -> Path:
        """Write the result, whole or not at all; forget the partial samples."""
        folder = BUILD / "quick" if self.quick else RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        result = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "title": self.title,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "quick": self.quick,
            **self._key,
            "load_before": round(self._load, 2),
            "versions": self._versions,
            "comparisons": self._comparisons,
            "absent": self._absent,
            "samples": self._samples,
        }
        write(folder / f"{self.name}.json", result)
        self._partial.unlink(missing_ok=True)
        return folder / f"{self.name}.json"

    def _recall(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._partial.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if kept["key"] != self._key:
            return {}
        self._versions = {**kept["versions"], "ours": versions()}
        return dict(kept["samples"])


def best(samples: Mapping[str, Sequence[float | None]], *, most: bool) -> str:
    """Return the name with the best median; what has no sample does not count."""
    medians = {
        name: statistics.median(found)
        for name, values in samples.items()
        if (found := [v for v in values if v is not None])
    }
    if not medians:
        raise Failed("no peer could be measured")
    return (max if most else min)(medians, key=medians.__getitem__)


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of a contestant's process: one thread, as cores belong to simulators."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **variables}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # a second start must find what the first compiled
    return env


def run_json(command: Sequence[str | Path], *, whole: bool = False, timeout: float = 3600.0) -> Any:
    """Run a process in the repository's root and return the JSON of its last line.

    With ``whole``, all of its standard output is the JSON.

    Raises:
        Failed: it ended with an error, or said nothing.
    """
    more = os.environ.get("PYTHONPATH")
    env = environment(PYTHONPATH=os.pathsep.join([str(ROOT), *([more] if more else [])]))
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failed(f"no answer in {timeout:.0f} s") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise Failed("; ".join(done.stderr.strip().splitlines()[-3:]) or f"rc {done.returncode}")
    return json.loads(done.stdout if whole else lines[-1])


def wall(command: Sequence[str | Path], **variables: str) -> float:
    """Return the seconds that a process takes from its start to its end.

    Raises:
        Failed: it ended with an error.
    """
    env = environment(**variables)
    began = time.perf_counter()
    done = subprocess.run([str(p) for p in command], cwd=ROOT, env=env, capture_output=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise Failed(done.stderr.decode(errors="replace")[-300:])
    return seconds


# --- what is told about where it was measured -----------------------------------------------------


def machine() -> dict[str, Any]:
    """Return what there is to know about this machine without naming it."""
    model = platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "system": f"{platform.system()}, {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed here and named in :data:`REPORTED`."""
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    return {name: found[name] for name in REPORTED if name in found}


def commit() -> str:
    """Return the commit that is measured, with ``+`` where code has changed since."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    watched = ["rlinf_core", "plugins", "configs", "benchmarks", ":!benchmarks/results"]
    changed = git("status", "--porcelain", "--", *watched)
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else "")


def write(path: Path, data: Any) -> None:
    """Write JSON beside, then rename."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, sort_keys=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
