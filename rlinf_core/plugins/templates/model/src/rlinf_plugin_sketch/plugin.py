"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_models():
    return [
        ComponentSpec(
            name="sketch",
            summary="A linear Gaussian policy with a linear critic, reads a state vector",
            target="rlinf_plugin_sketch.policy:SketchPolicy",
            config="rlinf_plugin_sketch.config:SketchConfig",
            # Declare what the tests show, and nothing else: runs are refused or let through by it.
            capabilities={
                Capability.VALUE,
                Capability.ENTROPY,
                Capability.LOGPROB,
                Capability.STATE,
                Capability.ACTION_CHUNK,
            },
            needs={Kind.SIMULATOR: {Capability.STATE}},
        )
    ]
