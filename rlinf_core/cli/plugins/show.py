"""``rlinf plugins show``: a component and its options, or a distribution and what became of it."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rlinf_core.cli.report import component_data, print_json, record_data
from rlinf_core.errors import PluginError, RequestError, did_you_mean
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import PluginRecord
from rlinf_core.specs import Component, Kind


def main(name: str, kind: Kind | None, json: bool) -> int:
    """Show; return the exit code 0, also where what was asked about is broken: it was shown."""
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
        print_json(
            distributions=[
                {**record_data(r), "origin": r.origin, "traceback": r.traceback or None}
                for r in unique
            ],
            components=described,
        )
        return 0
    for record in unique:
        print(f"{record.sentence}\n  from {record.origin}")
        if record.traceback:
            print(record.traceback.rstrip())
    for component in described:
        _print_component(component)
    return 0


def _described(component: Component) -> dict[str, Any]:
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
    described = {**component_data(component), "version": component.version, "needs": needs}
    return {**described, "options": options, "options_error": fault}


def _print_component(component: dict[str, Any]) -> None:
    print(f"\n{component['kind']} {component['name']}: {component['summary']}")
    print(f"  from         {component['distribution']} {component['version']}")
    print(f"  target       {component['target']}")
    levels = [
        name if level == "full" else f"{name} ({level})"
        for name, level in component["capabilities"].items()
    ]
    print(f"  can do       {', '.join(levels) or 'nothing declared'}")
    for kind, needed in component["needs"].items():
        print(f"  needs        {', '.join(needed)} of the {kind}")
    if component["options_error"]:
        print(f"  options      {component['options_error']}")
    elif not component["options"]:
        print("  options      none")
    else:
        print("  options")
        for option in component["options"]:
            default = "required" if option["required"] else json_module.dumps(option["default"])
            print(f"    {option['name']}: {option['type']} = {default}")
            for line in option["help"].splitlines():
                print(f"        {line.strip()}")


def _unknown(name: str, kind: Kind | None, records: Iterable[PluginRecord]) -> RequestError:
    known = {r.distribution for r in records} | {c.spec.name for r in records for c in r.components}
    what = f"{kind} or distribution" if kind else "component or distribution"
    near = did_you_mean(name.lower(), known)
    return RequestError(f"no {what} named {name!r} is installed.{near} See: rlinf plugins list")
