"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_algorithms() -> list[ComponentSpec]:
    """Provide the algorithm ``grpo``."""
    return [
        ComponentSpec(
            name="grpo",
            summary="Group relative policy optimisation: episodes compared with one another",
            target="rlinf_plugin_grpo.grpo:GRPO",
            config="rlinf_plugin_grpo.config:GRPOConfig",
            facts="rlinf_plugin_grpo.facts:facts",
            needs={
                Kind.MODEL: {Capability.LOGPROB},
                Kind.SIMULATOR: {Capability.SHARED_STATES},
            },
        )
    ]
