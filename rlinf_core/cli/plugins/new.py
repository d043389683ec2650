"""``rlinf plugins new``: a whole plugin that works, to be changed into one's own."""

from __future__ import annotations

import shlex
from pathlib import Path

from rlinf_core.cli.report import print_json
from rlinf_core.plugins.scaffold import make_plugin
from rlinf_core.specs import Kind


def main(kind: Kind, name: str, output: Path | None, json: bool) -> int:
    """Make it; return the exit code 0."""
    made = make_plugin(kind, name, output)
    if json:
        print_json(
            distribution=made.distribution,
            folder=str(made.folder),
            files=[str(file) for file in made.files],
        )
        return 0
    folder = shlex.quote(str(made.folder))
    print(f"{made.folder}: a plugin with the {kind} {name!r}")
    for file in made.files:
        print(f"  {file}")
    print(
        f"try next:\n  pip install -e {folder}\n  python -m pytest {folder}\n"
        f"  rlinf plugins check {made.distribution} --import"
    )
    return 0
