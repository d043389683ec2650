"""``rlinf plugins``: what is installed, what it offers, and why something cannot be used.

Listing imports only the tiny modules that plugins register with, never what they provide.
"""

from __future__ import annotations

import functools
import json as json_module
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlinf_core.errors import PluginError, RequestError, RlinfError, did_you_mean
from rlinf_core.plugins.records import CORE
from rlinf_core.specs import Component, Kind

if TYPE_CHECKING:
    from rlinf_core.plugins.records import PluginRecord

SCHEMA_VERSION = 1

app = typer.Typer(no_args_is_help=True, help="List and describe plugins and their components.")

KindOption = Annotated[Kind | None, typer.Option("--kind", help="Only components of this kind.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command("list")
def list_(kind: KindOption = None, json: Json = False) -> None:
    """List distributions and components."""
    from rlinf_core.plugins.manager import PluginManager

    manager = PluginManager()
    components = manager.registry.components(kind)
    if json:
        _print_json(
            distributions=[_record(record) for record in manager.records],
            components=[_component(component) for component in components],
        )
        return
    rows = [(str(c.kind), c.spec.name, c.distribution, c.spec.summary) for c in components]
    _print_table(("KIND", "NAME", "FROM", "WHAT IT IS"), rows)
    for record in manager.records:
        if not record.ok:
            typer.echo(f"\n{record.sentence}")


@app.command("show")
def show(
    name: Annotated[
        str, typer.Argument(help="A component, [distribution/]name, or a distribution.")
    ],
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Describe a component and its options, or a distribution and what became of it."""
    from rlinf_core.plugins.manager import PluginManager

    manager = PluginManager()
    given, _, bare = name.rpartition("/")
    components = [
        c
        for c in manager.registry.components(kind)
        if (c.spec.name == bare and given in ("", c.distribution)) or c.distribution == name
    ]
    wanted = {name, given, *(c.distribution for c in components)}
    records = [r for r in manager.records if r.distribution in wanted]
    if not components:
        records += [r for r in manager.records if not r.ok and not given and r.may_provide(bare)]
    if not components and not records:
        raise _unknown(name, kind, manager.records)
    described = [_described(component) for component in components]
    unique = list({id(record): record for record in records}.values())
    if json:
        _print_json(
            distributions=[
                {**_record(r), "origin": r.origin, "traceback": r.traceback or None} for r in unique
            ],
            components=described,
        )
        return
    for record in unique:
        typer.echo(f"{record.sentence}\n  from {record.origin}")
        if record.traceback:
            typer.echo(record.traceback)
    for component in described:
        _print_component(component)


@functools.cache
def commands(taken: frozenset[str]) -> dict[str, Any]:
    """Return the commands that plugins add to ``rlinf``, but for names that the core has."""
    from rlinf_core.plugins.manager import PluginManager

    owners = dict.fromkeys(taken, CORE)
    found: dict[str, Any] = {}
    try:
        manager = PluginManager()
    except RlinfError as error:  # help must work even where the user's file is wrong
        typer.echo(f"warning: commands of plugins are not shown: {error}", err=True)
        return found
    for distribution in manager.implementing("rlinf_cli"):
        group = typer.Typer()
        try:
            manager.call(distribution, "rlinf_cli", group=group)
            added = typer.main.get_group(group).commands
        except Exception as error:
            text = f"warning: {distribution}: rlinf_cli failed: {type(error).__name__}: {error}"
            typer.echo(text, err=True)
            continue
        for name, command in added.items():
            if owner := owners.get(name):
                text = f"warning: {distribution}: {owner} already has a command {name!r}"
                typer.echo(text, err=True)
                continue
            owners[name], found[name] = distribution, command
    return found


def _record(record: PluginRecord) -> dict[str, Any]:
    return {
        "distribution": record.distribution,
        "version": record.version,
        "status": str(record.status),
        "phase": str(record.phase) if record.phase else None,
        "error": record.error or None,
    }


def _component(component: Component) -> dict[str, Any]:
    spec = component.spec
    return {
        "kind": str(component.kind),
        "name": spec.name,
        "distribution": component.distribution,
        "summary": spec.summary,
        "target": spec.target,
        "capabilities": {
            str(c): level.name.lower() for c, level in sorted(spec.capabilities.items())
        },
    }


def _described(component: Component) -> dict[str, Any]:
    from dataclasses import asdict

    from rlinf_core.config.components import config_class
    from rlinf_core.config.options import list_options

    needs = {str(k): sorted(str(c) for c in cs) for k, cs in component.spec.needs.items()}
    options: list[dict[str, Any]] = []
    fault = None
    try:
        model = config_class(component)
        options = [asdict(option) for option in list_options(model)] if model else []
    except PluginError as error:  # shown, because showing is what was asked for
        fault = str(error)
    described = {**_component(component), "version": component.version, "needs": needs}
    return {**described, "options": options, "options_error": fault}


def _print_component(component: dict[str, Any]) -> None:
    typer.echo(f"\n{component['kind']} {component['name']}: {component['summary']}")
    typer.echo(f"  from         {component['distribution']} {component['version']}")
    typer.echo(f"  target       {component['target']}")
    levels = [
        name if level == "full" else f"{name} ({level})"
        for name, level in component["capabilities"].items()
    ]
    typer.echo(f"  can do       {', '.join(levels) or 'nothing declared'}")
    for kind, needed in component["needs"].items():
        typer.echo(f"  needs        {', '.join(needed)} of the {kind}")
    if component["options_error"]:
        typer.echo(f"  options      {component['options_error']}")
    elif not component["options"]:
        typer.echo("  options      none")
    else:
        typer.echo("  options")
        for option in component["options"]:
            default = "required" if option["required"] else json_module.dumps(option["default"])
            typer.echo(f"    {option['name']}: {option['type']} = {default}")
            for line in option["help"].splitlines():
                typer.echo(f"        {line.strip()}")


def _unknown(name: str, kind: Kind | None, records: Iterable[PluginRecord]) -> RequestError:
    known = {r.distribution for r in records} | {c.spec.name for r in records for c in r.components}
    what = f"{kind} or distribution" if kind else "component or distribution"
    near = did_you_mean(name.lower(), known)
    return RequestError(f"no {what} named {name!r} is installed.{near} See: rlinf plugins list")


def _print_json(**data: Any) -> None:
    json_module.dump({"schema_version": SCHEMA_VERSION, **data}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns as wide as they must be; the last one may run on."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header) - 1)]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        typer.echo("  ".join([*cells, row[-1]]).rstrip())
