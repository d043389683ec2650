"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_models() -> list[ComponentSpec]:
    """Provide the model ``openvla-oft``."""
    return [
        ComponentSpec(
            name="openvla-oft",
            summary="OpenVLA-OFT: reads images and an instruction, gives a chunk in one pass",
            target="rlinf_plugin_openvla_oft.policy:OFTPolicy",
            config="rlinf_plugin_openvla_oft.config:OFTConfig",
            facts="rlinf_plugin_openvla_oft.facts:facts",
            capabilities={
                Capability.VALUE,
                Capability.ENTROPY,
                Capability.LOGPROB,
                Capability.DISCRETE_ACTIONS,
                Capability.LORA,
                Capability.SHARDING,
                Capability.IMAGES,
                Capability.STATE,
                Capability.INSTRUCTION,
                Capability.ACTION_CHUNK,
            },
            needs={Kind.SIMULATOR: {Capability.IMAGES, Capability.INSTRUCTION}},
            requires=("transformers", "tokenizers"),
        )
    ]
