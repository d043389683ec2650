"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_simulators():
    return [
        ComponentSpec(
            name="sketch",
            summary="A cart on a rail that should stop at a mark",
            target="rlinf_plugin_sketch.simulator:make_simulator",
            config="rlinf_plugin_sketch.config:SketchConfig",
            facts="rlinf_plugin_sketch.facts:facts",
            # Declare what the tests show, and nothing else: runs are refused or let through by it.
            capabilities={
                Capability.STATE,
                Capability.SUCCESS,
                Capability.SHARED_STATES,
                Capability.ACTION_CHUNK,
            },
        )
    ]
