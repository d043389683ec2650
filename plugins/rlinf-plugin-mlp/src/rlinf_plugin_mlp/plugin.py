"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_models() -> list[ComponentSpec]:
    """Provide the model ``mlp``."""
    return [
        ComponentSpec(
            name="mlp",
            summary="Gaussian actor-critic of two multi-layer perceptrons, reads a state vector",
            target="rlinf_plugin_mlp.policy:MLPPolicy",
            config="rlinf_plugin_mlp.config:MLPConfig",
            facts="rlinf_plugin_mlp.facts:facts",
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
