"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_algorithms():
    return [
        ComponentSpec(
            name="sketch",
            summary="Advantage actor-critic: the policy gradient with a critic",
            target="rlinf_plugin_sketch.algorithm:SketchAlgorithm",
            config="rlinf_plugin_sketch.config:SketchConfig",
            needs={Kind.MODEL: {Capability.VALUE, Capability.LOGPROB}},
        )
    ]
