"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_accelerators():
    return [
        ComponentSpec(
            name="sketch",
            summary="Devices that the system lists below /dev",
            target="rlinf_plugin_sketch.accelerator:SketchAccelerator",
        )
    ]
