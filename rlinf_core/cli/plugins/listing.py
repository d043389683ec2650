"""``rlinf plugins list``: every component, and every distribution that cannot be used.

It imports only the tiny modules that plugins register with, and with ``--no-import`` not even
those: then only what metadata tell is known.
"""

from __future__ import annotations

from rlinf_core.cli.report import component_data, print_json, print_table, record_data
from rlinf_core.errors import RequestError
from rlinf_core.plugins.manager import PluginManager, records_of_metadata
from rlinf_core.plugins.settings import user_settings
from rlinf_core.specs import Kind


def main(kind: Kind | None, no_import: bool, json: bool) -> int:
    """List; return the exit code 0."""
    if no_import:
        if kind is not None:
            raise RequestError(
                "--kind and --no-import exclude each other: what a plugin provides is known only "
                "once its module was imported"
            )
        return _without_import(json)
    manager = PluginManager()
    components = manager.registry.components(kind)
    if json:
        print_json(
            distributions=[record_data(record) for record in manager.records],
            components=[component_data(component) for component in components],
        )
        return 0
    rows = [(str(c.kind), c.spec.name, c.distribution, c.spec.summary) for c in components]
    print_table(("KIND", "NAME", "FROM", "WHAT IT IS"), rows)
    for record in manager.records:
        if not record.ok:
            print(f"\n{record.sentence}")
    return 0


def _without_import(json: bool) -> int:
    records = records_of_metadata(user_settings())
    if json:
        print_json(distributions=[record_data(record) for record in records], components=None)
        return 0
    rows = [(r.distribution, r.version, str(r.status), r.module or "-") for r in records]
    print_table(("DISTRIBUTION", "VERSION", "STATUS", "MODULE"), rows)
    for record in records:
        if record.error:
            print(f"\n{record.sentence}")
    return 0
