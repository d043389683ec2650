"""``rlinf plugins matrix``: which components fit together, and what is missing where not."""

from __future__ import annotations

from typing import Any

from rlinf_core.cli.report import print_json, print_table
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.matrix import Pair, pairs
from rlinf_core.specs import Component


def main(json: bool) -> int:
    """Show; return the exit code 0."""
    found = pairs(PluginManager().registry.components())
    if json:
        print_json(pairs=[_data(pair) for pair in found])
        return 0
    kinds = list(dict.fromkeys((pair.component.kind, pair.other.kind) for pair in found))
    for number, (kind, of) in enumerate(kinds):
        some = [p for p in found if (p.component.kind, p.other.kind) == (kind, of)]
        if number:
            print()
        _print_grid(f"{kind} \\ {of}".upper(), some)
    if not found:
        print("no component needs anything of another")
    for pair in found:
        if not pair.fits:
            lacks = ", ".join(f"{c} ({level.name.lower()})" for c, level in pair.missing)
            print(f"\n{_who(pair.component)} does not fit {_who(pair.other)}: it needs {lacks}")
    return 0


def _print_grid(corner: str, some: list[Pair]) -> None:
    rows = list(dict.fromkeys(pair.component.qualified_name for pair in some))
    columns = list(dict.fromkeys(pair.other.qualified_name for pair in some))
    fits = {(p.component.qualified_name, p.other.qualified_name): p.fits for p in some}
    short = _short(rows), _short(columns)
    print_table(
        (corner, *(short[1][name] for name in columns)),
        [
            (short[0][row], *("fits" if fits[row, column] else "no" for column in columns))
            for row in rows
        ],
    )


def _short(names: list[str]) -> dict[str, str]:
    """Return names without their distribution, but for those that two provide."""
    bare = [name.rpartition("/")[2] for name in names]
    return {name: b if bare.count(b) == 1 else name for name, b in zip(names, bare, strict=True)}


def _who(component: Component) -> str:
    return f"the {component.kind} {component.qualified_name}"


def _data(pair: Pair) -> dict[str, Any]:
    return {
        "kind": str(pair.component.kind),
        "name": pair.component.spec.name,
        "distribution": pair.component.distribution,
        "other_kind": str(pair.other.kind),
        "other_name": pair.other.spec.name,
        "other_distribution": pair.other.distribution,
        "fits": pair.fits,
        "missing": {str(c): level.name.lower() for c, level in pair.missing},
    }
