"""What this plugin provides, as data; imports no torch and no library of ROCm's."""

from __future__ import annotations

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_accelerators() -> list[ComponentSpec]:
    """Provide the accelerator ``rocm``."""
    return [
        ComponentSpec(
            name="rocm",
            summary="AMD GPUs, with a torch that was built for ROCm",
            target="rlinf_plugin_rocm.accelerator:Rocm",
        )
    ]
