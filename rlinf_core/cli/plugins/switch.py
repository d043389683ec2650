"""``rlinf plugins enable`` and ``disable``: which plugins all runs load, in the user's own file."""

from __future__ import annotations

from rlinf_core.cli.report import print_json
from rlinf_core.plugins.userfile import switch


def main(names: list[str], on: bool, json: bool) -> int:
    """Switch plugins on or off; return the exit code 0."""
    changes = switch(names, on)
    if json:
        print_json(
            file=str(changes.path),
            changed=list(changes.changed),
            unchanged=list(changes.unchanged),
        )
        return 0
    what = "enabled" if on else "disabled"
    for name in changes.changed:
        print(f"{name} is now {what}, by {changes.path}")
    for name in changes.unchanged:
        print(f"{name} is {what} already")
    return 0
