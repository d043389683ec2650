"""What this plugin provides, as data; imports neither torch nor torch_npu."""

from __future__ import annotations

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_accelerators() -> list[ComponentSpec]:
    """Provide the accelerator ``ascend``."""
    return [
        ComponentSpec(
            name="ascend",
            summary="Ascend NPUs, with torch_npu",
            target="rlinf_plugin_ascend.accelerator:Ascend",
            # Not "requires": NPUs are counted, and planned for, without it.
            probe="rlinf_plugin_ascend.probe:probe",
        )
    ]
