"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl


@hookimpl
def rlinf_algorithms() -> list[ComponentSpec]:
    """Provide the algorithm ``ppo``."""
    return [
        ComponentSpec(
            name="ppo",
            summary="Proximal policy optimisation with a critic, over chunks of actions",
            target="rlinf_plugin_ppo.ppo:PPO",
            config="rlinf_plugin_ppo.config:PPOConfig",
            facts="rlinf_plugin_ppo.facts:facts",
            needs={Kind.MODEL: {Capability.VALUE, Capability.LOGPROB}},
        )
    ]
