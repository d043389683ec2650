"""``rlinf plan``: what a run would do on this machine, before anything starts.

Each section of the page is a function that prints it; what it prints is worked out in
``rlinf_core.flow`` and ``rlinf_core.runs.plan``.
"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError, Problem, RequestError
from rlinf_core.files import finite
from rlinf_core.flow.arrange import Arrangement, assuming
from rlinf_core.flow.plan import (
    MODES,
    Plan,
    conventions,
    devices_of,
    mode,
    needs,
    refused_json,
    values,
)
from rlinf_core.flow.sizes import Size, in_seconds, in_words
from rlinf_core.runs.plan import ITERATION, make_plan

WIDTH = 100
"""Columns where standard output is no terminal."""


def main(
    run: str, json: bool, overrides: list[str], assume: str | None, profile: Path | None
) -> int:
    """Print the plan; return the exit code: 0, or 2 where something is wrong with the run."""
    try:
        loaded = load_run(run, overrides)
        plan = make_plan(loaded if assume is None else assuming(loaded, assume), profile)
    except RequestError as error:
        if not json:
            raise
        told = error.problems if isinstance(error, ConfigError) else (Problem("", str(error)),)
        _print_json(refused_json(told))
        return error.exit_code
    if json:
        _print_json(plan.as_json())
        return ConfigError.exit_code if plan.problems else 0
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)
    _print_page(console, plan)
    plan.raise_any()
    return 0


def _print_json(data: Any) -> None:
    print(json_module.dumps(finite(data), indent=2))


def _print_page(console: Console, plan: Plan) -> None:
    if plan.arrangement is not None:
        _where(console, plan, plan.arrangement)
    if plan.graph is not None:
        _flow(console, plan)
        _moves(console, plan)
        _batch(console, plan)
    if plan.arrangement is not None:
        _memory(console, plan)
        _times(console, plan)
    _checks(console, plan)
    _values(console, plan)


def _where(console: Console, plan: Plan, arrangement: Arrangement) -> None:
    how = mode(arrangement)
    console.print(Text(f"{plan.run.config.name}: {how}, {MODES[how]}", "bold"))
    rows = []
    for group in plan.graph.groups if plan.graph else ():
        at = [", ".join(str(device) for device in process.devices) for process in group.place]
        rows.append((group.name, _processes(group.size), " | ".join(at)))
    if not rows:
        for name, place in arrangement.groups.items():
            shown = ", ".join(map(str, sorted(devices_of(place), key=lambda d: d.index)))
            rows.append((name, _processes(len(place)), shown))
    _table(console, "Groups", ("group", "runs in", "devices, by process"), rows)
    chosen = "given" if plan.run.config.collect.stages else "chosen by the placement"
    console.print(f"stages: {arrangement.stages} ({chosen})")
    if plan.run.assumed is not None:
        console.print("devices are assumed: whether this machine has them was not looked at")


def _flow(console: Console, plan: Plan) -> None:
    assert plan.graph is not None
    rows = [
        (
            f"{call.group}.{call.method}",
            ", ".join(channel for channel, _ in call.reads),
            ", ".join(channel for channel, _ in call.writes),
        )
        for call in plan.graph.calls
        if call.phase == ITERATION
    ]
    _table(console, "Flow of one iteration", ("call", "reads", "writes"), rows)


def _moves(console: Console, plan: Plan) -> None:
    rows = [
        (
            moved.channel,
            f"{moved.source} -> {moved.target}",
            str(moved.traffic.items),
            str(moved.traffic.item),
            str(moved.traffic.total),
            moved.transport,
        )
        for moved in plan.transfers
    ]
    header = ("channel", "from -> to", "items", "each", "in all", "by")
    _table(console, "Moved in one iteration", header, rows)
    for moved in plan.transfers:
        for leg in moved.legs:
            if leg.why:
                console.print(f"{moved.channel}: {leg.way}, since {leg.why}", soft_wrap=True)
    for moved in plan.transfers:
        if moved.traffic.note:
            console.print(f"{moved.channel}: {moved.traffic.note}")
    _reasons(console, [moved.traffic.total for moved in plan.transfers])


def _batch(console: Console, plan: Plan) -> None:
    batch = plan.batch
    assert batch is not None
    lines = [
        f"{batch['environments']} environments x {batch['steps']} steps = {batch['rows']} rows, "
        f"{batch['environment_steps']} environment steps (chunks of {batch['chunk']})",
        f"{batch['epochs']} epochs x {batch['minibatches_per_epoch']} minibatches of "
        f"{batch['minibatch_size']} rows = {batch['optimizer_steps']} optimizer steps at most",
        f"micro-batches: {batch['microbatches_per_minibatch']} per minibatch, of "
        f"{batch['microbatch_size']} rows",
        f"each simulation process: {batch['environments_per_simulation_process']} environments, "
        f"each stage {batch['environments_per_stage']}",
        f"each rollout process: {_each(batch['streams_per_rollout_process'])} streams of steps",
        f"each training process: {batch['rows_per_training_process']} rows",
    ]
    _heading(console, "Batch of one iteration")
    for line in lines:
        console.print(line)


def _memory(console: Console, plan: Plan) -> None:
    rows = []
    for pool in plan.pools:
        has = "unknown" if pool.capacity is None else in_words(pool.capacity)
        for name, parts in pool.parts.items():
            shown = ", ".join(f"{part} {size}" for part, size in parts.items())
            rows.append((f"{pool.name} ({has})", name, str(pool.of(name)), shown))
        fits = {True: "fits", False: "does not fit", None: "not known whether it fits"}[pool.fits]
        rows.append((f"{pool.name} ({has})", f"= {pool.sharing}", str(pool.needed), fits))
    _table(console, "Memory", ("device", "group", "keeps", "of which"), rows)
    _reasons(console, [pool.total for pool in plan.pools])


def _times(console: Console, plan: Plan) -> None:
    found = plan.prediction
    _heading(console, "Time of one iteration")
    if found is None:
        console.print(
            "unknown: nothing was measured; rlinf plan RUN --profile FOLDER takes the costs of "
            "an earlier run",
            soft_wrap=True,
        )
        return
    whole, collect, learn = (
        in_seconds(found[f"{name}_s"]) for name in ("iteration", "collect", "update")
    )
    console.print(f"predicted {whole}: {collect} to collect, {learn} to learn")
    idle = ", ".join(f"{device} {share:.0%}" for device, share in found["idle"].items())
    console.print(f"idle: {idle}", soft_wrap=True)
    console.print(f"from what things cost in {found['profile']}", soft_wrap=True)
    for note in found["notes"]:
        console.print(note, soft_wrap=True)


def _checks(console: Console, plan: Plan) -> None:
    lines = [f"{need.who} needs {need.capability}: {need.of} has it" for need in needs(plan.run)]
    for found in conventions(plan.run):
        given, expected = found.given or "unknown", found.expected or "unknown"
        owner = f", brought about by {found.owner}" if found.owner else ""
        lines.append(f"{found.name}: given {given}, expected {expected}{owner}")
    _heading(console, "Checks")
    for line in lines:
        console.print(line, soft_wrap=True)
    if plan.problems:
        console.print(f"{len(plan.problems)} wrong, see the end", style="bold red")


def _values(console: Console, plan: Plan) -> None:
    rows = [
        (path, json_module.dumps(found["value"]), found["origin"])
        for path, found in values(plan.run).items()
    ]
    _table(console, "Values", ("option", "value", "from"), rows)


def _reasons(console: Console, sizes: Iterable[Size]) -> None:
    """Print once why something is unknown."""
    for reason in dict.fromkeys(reason for size in sizes for reason in size.unknown):
        console.print(f"unknown: {reason}", soft_wrap=True)


def _processes(number: int) -> str:
    return f"{number} processes" if number > 1 else "1 process"


def _each(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold"))


def _table(
    console: Console, title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    _heading(console, title)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
