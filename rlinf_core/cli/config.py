"""``rlinf config``: a run's resolved values with their origins, and the schema of run files."""

from __future__ import annotations

import enum
import json as json_module
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlinf_core.cli.arguments import Json, Overrides, RunName

if TYPE_CHECKING:
    from rlinf_core.config.explain import Explanation
    from rlinf_core.specs import Facts

SCHEMA_VERSION = 1

WIDEST = 60
"""Columns before the comments; a longer line pushes its own comment further."""


app = typer.Typer(no_args_is_help=True, help="Show what a run file comes to, or may say.")


class Purpose(enum.StrEnum):
    """What a run is looked at for, which says what it must have."""

    TRAIN = "train"
    EVAL = "eval"


@app.command("show")
def show(
    run: RunName,
    overrides: Overrides = None,
    purpose: Annotated[
        Purpose, typer.Option("--for", help="The command that it must be right for.")
    ] = Purpose.TRAIN,
    json: Json = False,
) -> None:
    """Print every value of a run with where it came from, as a run file."""
    from rlinf_core.config.explain import explain
    from rlinf_core.config.validate import load_run
    from rlinf_core.runs.evaluate import SECTIONS

    trains = purpose is Purpose.TRAIN
    loaded = load_run(run, overrides or [], sections=None if trains else SECTIONS)
    explanation = explain(loaded, trains)
    if json:
        report = {"schema_version": SCHEMA_VERSION, **explanation.as_json()}
        json_module.dump(report, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        _print(_page(explanation))


@app.command("schema")
def schema(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run whose plugins and groups count; or none."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write; else it is printed.")] = None,
) -> None:
    """Print the JSON Schema of run files, which lets editors complete and check them."""
    from rlinf_core.config.json_schema import json_schema, names_in
    from rlinf_core.config.validate import compose_named
    from rlinf_core.plugins.manager import PluginManager

    if run is None:
        manager, chosen = PluginManager(), {}
    else:
        composed, manager = compose_named(run)
        chosen = names_in(composed.data)
    document, faults = json_schema(manager.registry, chosen)
    for fault in faults:
        typer.echo(f"warning: {fault}", err=True)
    text = json_module.dumps(document, indent=2, allow_nan=False) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)


def _write(output: Path, text: str) -> None:
    """Write a schema, over an older one if need be and over nothing else."""
    from rlinf_core.config.json_schema import is_ours
    from rlinf_core.errors import RequestError
    from rlinf_core.files import write_text

    try:
        if output.exists() and not is_ours(output.read_text(encoding="utf-8", errors="replace")):
            raise RequestError(
                f"--output {output} is something else than a schema of run files, and is not "
                "overwritten; choose another name, such as rlinf.schema.json"
            )
        write_text(output, text)
    except OSError as error:
        raise RequestError(f"cannot write {output}: {error}; choose another --output") from None


def _page(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield (YAML, comment) of every line."""
    from rlinf_core.config.explain import yaml_lines

    yield "", f"the run {explanation.name!r}, every value with where it came from"
    yield from yaml_lines(explanation)
    yield "", ""
    yield "", "components"
    rows = [
        (section, component.spec.name, f"{component.distribution} {component.version}")
        for section, component in explanation.components.items()
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "", f"  {cells}  {_weight(explanation.facts[row[0]])}"
    yield "", ""
    yield "", "arithmetic"
    for name, value, how in explanation.quantities:
        yield "", f"  {name}: {value}  ({how})"
    for origin, section in explanation.layers:
        said = ", ".join(f"{key} {value}" for key, value in section.items() if value)
        yield "", f"plugins, by {origin}: {said}"


def _weight(facts: Facts) -> str:
    from rlinf_core.specs import Unknown

    known = {"parameters": facts.parameters, "bytes": facts.bytes}
    texts = (f"{k} {'unknown' if isinstance(v, Unknown) else v}" for k, v in known.items())
    return ", ".join(texts)


def _print(page: Iterator[tuple[str, str]]) -> None:
    """Print YAML with comments beside it, dimmed where a person looks on."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    lines = list(page)
    column = min(WIDEST, max(len(text) for text, _ in lines)) + 2
    for text, comment in lines:
        margin = " " * max(2, column - len(text)) if text else ""
        comment = comment.replace("\n", " ")  # whatever a file is called: what follows is YAML
        beside = Text(f"{margin}# {comment}" if comment else "", style="dim")
        console.print(Text(text) + beside)
