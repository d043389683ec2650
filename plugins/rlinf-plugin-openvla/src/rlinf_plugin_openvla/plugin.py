"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_models() -> list[ComponentSpec]:
    """Provide the model ``openvla``."""
    return [
        ComponentSpec(
            name="openvla",
            summary="OpenVLA: reads images and an instruction, writes actions token by token",
            target="rlinf_plugin_openvla.policy:OpenVLAPolicy",
            config="rlinf_plugin_openvla.config:OpenVLAConfig",
            facts="rlinf_plugin_openvla.facts:facts",
            capabilities={
                Capability.VALUE,
                Capability.ENTROPY,
                Capability.LOGPROB,
                Capability.DISCRETE_ACTIONS,
                Capability.LORA,
                Capability.SHARDING,
                Capability.IMAGES,
                Capability.INSTRUCTION,
                Capability.ACTION_CHUNK,
            },
            needs={Kind.SIMULATOR: {Capability.IMAGES, Capability.INSTRUCTION}},
            requires=("transformers", "tokenizers"),
        )
    ]
