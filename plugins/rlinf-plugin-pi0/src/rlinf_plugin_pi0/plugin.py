"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl

NEEDS = {Capability.IMAGES, Capability.STATE, Capability.INSTRUCTION}
CAPABILITIES = NEEDS | {
    Capability.ACTION_CHUNK,
    Capability.ENTROPY,
    Capability.LOGPROB,
    Capability.LORA,
    Capability.SHARDING,
    Capability.VALUE,
}


@hookimpl
def rlinf_models() -> list[ComponentSpec]:
    """Provide the models ``pi0`` and ``pi05``."""
    return [
        ComponentSpec(
            name="pi0",
            summary="pi0: flow matching on PaliGemma with an action expert",
            target="rlinf_plugin_pi0.policy:Pi0Policy",
            config="rlinf_plugin_pi0.config:Pi0Config",
            facts="rlinf_plugin_pi0.facts:facts",
            capabilities=CAPABILITIES,
            needs={Kind.SIMULATOR: NEEDS},
            requires=("tokenizers", "transformers"),
        ),
        ComponentSpec(
            name="pi05",
            summary="pi0.5: pi0 with the state in the prompt and norms that know the flow's time",
            target="rlinf_plugin_pi0.policy:Pi05Policy",
            config="rlinf_plugin_pi0.config:Pi05Config",
            facts="rlinf_plugin_pi0.facts:facts",
            capabilities=CAPABILITIES,
            needs={Kind.SIMULATOR: NEEDS},
            requires=("tokenizers", "transformers"),
        ),
    ]
