"""``rlinf plugins``: what is installed, whether it is well made, and how to make more.

One short file per command; a new one gets a file with a ``main`` that returns the exit code, and a
wrapper here that says its arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlinf_core.specs import Kind

app = typer.Typer(no_args_is_help=True, help="List, check, make and choose plugins.")

KindOption = Annotated[Kind | None, typer.Option("--kind", help="Only components of this kind.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Named = Annotated[
    list[str],
    typer.Argument(metavar="DISTRIBUTION...", help="Such as rlinf-plugin-ppo, or short: ppo."),
]


@app.command("list")
def _list(
    kind: KindOption = None,
    no_import: Annotated[
        bool,
        typer.Option("--no-import", help="Read metadata only: components are not known then."),
    ] = False,
    json: Json = False,
) -> None:
    """List distributions and components."""
    from rlinf_core.cli.plugins.listing import main

    raise typer.Exit(main(kind, no_import, json))


@app.command("show")
def _show(
    name: Annotated[
        str, typer.Argument(help="A component, [distribution/]name, or a distribution.")
    ],
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Describe a component and its options, or a distribution and what became of it."""
    from rlinf_core.cli.plugins.show import main

    raise typer.Exit(main(name, kind, json))


@app.command("check")
def _check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DISTRIBUTION]...", help="All that are enabled, if none is named."),
    ] = None,
    imports: Annotated[
        bool, typer.Option("--import", help="Also import every component's code.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also ask every component's probe about this machine.")
    ] = False,
    json: Json = False,
) -> None:
    """Put plugins to the test; ends with 1 if a check failed."""
    from rlinf_core.cli.plugins.check import main

    raise typer.Exit(main(names or [], imports, probe, json))


@app.command("new")
def _new(
    kind: Annotated[Kind, typer.Argument(help="What it is to provide.")],
    name: Annotated[str, typer.Argument(help="Name of the component, such as my-sim.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder to make; rlinf-plugin-NAME here if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a new plugin: a package that works, with tests, to be changed into your own."""
    from rlinf_core.cli.plugins.new import main

    raise typer.Exit(main(kind, name, output, json))


@app.command("enable")
def _enable(names: Named, json: Json = False) -> None:
    """Load plugins in all runs, in your own configuration file."""
    from rlinf_core.cli.plugins.switch import main

    raise typer.Exit(main(names, True, json))


@app.command("disable")
def _disable(names: Named, json: Json = False) -> None:
    """Load plugins in no run, in your own configuration file."""
    from rlinf_core.cli.plugins.switch import main

    raise typer.Exit(main(names, False, json))


@app.command("matrix")
def _matrix(json: Json = False) -> None:
    """Show which components fit together, by what they declare and need."""
    from rlinf_core.cli.plugins.matrix import main

    raise typer.Exit(main(json))
