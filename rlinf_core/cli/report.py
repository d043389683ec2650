"""What reports have in common: one JSON object with a version, tables, plain data of records."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rlinf_core.plugins.records import PluginRecord
from rlinf_core.specs import Component

SCHEMA_VERSION = 1


def print_json(**data: Any) -> None:
    """Print one JSON object."""
    json.dump({"schema_version": SCHEMA_VERSION, **data}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns as wide as they must be; the last one may run on."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header) - 1)]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())


def record_data(record: PluginRecord) -> dict[str, Any]:
    """Return what became of a distribution, as plain data."""
    return {
        "distribution": record.distribution,
        "version": record.version,
        "status": str(record.status),
        "phase": str(record.phase) if record.phase else None,
        "error": record.error or None,
    }


def component_data(component: Component) -> dict[str, Any]:
    """Return what a component's spec says, as plain data."""
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
