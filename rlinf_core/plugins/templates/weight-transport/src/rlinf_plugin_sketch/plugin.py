"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_weight_transports():
    return [
        ComponentSpec(
            name="sketch",
            summary="All weights from the first rank, through the runtime's channel",
            target="rlinf_plugin_sketch.transport:SketchTransport",
        )
    ]
