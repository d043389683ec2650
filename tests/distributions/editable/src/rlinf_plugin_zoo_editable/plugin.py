"""A plugin that is installed in place."""

from __future__ import annotations

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_algorithms() -> list[ComponentSpec]:
    """Return one algorithm."""
    return [ComponentSpec("zoo-editable", "An algorithm.", "rlinf_plugin_zoo_editable.code:Code")]
