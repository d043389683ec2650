"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run file, or the name of a run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Options to set, such as collect.envs=8."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
