"""The page of results, from ``results/*.json`` alone: ``performance() -> Markdown``.

Imports nothing but the standard library, so that ``docs/generate.py`` and its test can load it by
its path.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

ORDER = (
    "learn", "collect", "pipeline", "flow_overhead", "channel", "weights", "first_update",
    "kernels", "listing",
)  # fmt: skip
"""Benchmarks in the order of the page; others follow by name."""

INTRODUCTION = """\
# Performance

Every number here is a ratio: ours against a peer, or against a limit, measured in the same run on
the same machine. Absolute numbers of another machine say little; ratios carry over better. None of
this is asserted by a test.

How it is measured:

* Contestants take turns, round by round. A ratio is formed within a round, so a machine that is
  slower for a while slows both. The table shows the median over rounds, and as spread the smallest
  and the largest.
* *Ratio* is ours divided by the other's. Of rates more is better, of times and steps less. *Aim* is
  what we want it to be; a line without one is there to be compared.
* All run on one thread per process. Peers have environments of their own with pinned versions
  (`benchmarks/requirements-*.txt`). A peer that could not be installed or run stands below its
  table, with the reason.
* Learners get the same hyperparameters, which are read from one run file
  (`benchmarks/configs/`): the same number of processes, network, rollout, minibatches and epochs.
  Peers normalise rewards by a running deviation; ours are scaled by a fixed number.
* "Our code" of a task is the simulator that a user of the plugin gets: the same physics and the
  same numbers bit for bit, with less work around them. "Same environment" and "peers' code" is the
  environment exactly as peers step it. Only the latter compares trainers alone.

`python3 -m nox -s bench` measures everything anew and takes more than an hour;
`python3 -m nox -s bench -- kernels --quick` tries one in seconds and overwrites nothing. What was
interrupted goes on where it was. Raw samples are in `benchmarks/results/`. After measuring, run
`python docs/generate.py`.
"""


def performance(results: Path = RESULTS) -> str:
    """Return the page."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in results.glob("*.json")}
    lines = [INTRODUCTION]
    names = [name for name in ORDER if name in found] + sorted(set(found) - set(ORDER))
    for name in names:
        lines += _benchmark(found[name])
    if not names:
        lines.append("Nothing was measured yet.\n")
    return "\n".join(lines)


def _benchmark(result: Mapping[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    yield f"## {result['title']}\n"
    if note := result["settings"].get("note"):
        yield f"{note}\n"
    yield "| what | ours | other | | ratio | spread | aim | |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for line in result["comparisons"]:
        yield _row(line)
    yield ""
    for who, reason in result["absent"].items():
        yield f"* Not measured: {who}: {_cell(reason)}"
    if result["absent"]:
        yield ""
    versions = {n: v for each in result["versions"].values() for n, v in each.items()}
    yield (
        f"{result['date']}, commit `{result['commit']}`, {result['settings']['rounds']} rounds; "
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}, load before {result['load_before']}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + ".\n"
    )


def _row(line: Mapping[str, Any]) -> str:
    ratios = line["ratios"]
    ratio = spread = verdict = "–"
    if ratios:
        middle = statistics.median(ratios)
        ratio, spread = (
            f"**{_number(middle)}**",
            f"{_number(min(ratios))} to {_number(max(ratios))}",
        )
        verdict = _verdict(line["aim"], middle)
    cells = (
        line["what"] + (f" ({line['note']})" if line["note"] else ""),
        _samples(line["ours"], line["unit"]),
        line["other"],
        _samples(line["others"], line["unit"]),
        ratio,
        spread,
        _aim(line["aim"]),
        verdict if line["aim"] else "",
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _samples(values: Sequence[float | None], unit: str) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "never"
    missed = f", missed in {len(values) - len(found)} of {len(values)}"
    text = f"{_number(statistics.median(found))} {unit}"
    return text + (missed if len(found) < len(values) else "")


def _aim(aim: Mapping[str, float]) -> str:
    if "at_least" in aim:
        return f"≥ {aim['at_least']:g}"
    return f"≤ {aim['at_most']:g}" if "at_most" in aim else ""


def _verdict(aim: Mapping[str, float], ratio: float) -> str:
    met = aim.get("at_least", -1.0) <= ratio <= aim.get("at_most", float("inf"))
    return "met" if met else "missed"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;")
