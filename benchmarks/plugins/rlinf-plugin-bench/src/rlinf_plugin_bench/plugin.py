"""What this plugin provides, as data."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_simulators() -> list[ComponentSpec]:
    """Provide the simulator ``peers``."""
    return [
        ComponentSpec(
            name="peers",
            summary="The environments that peers are measured on, in our processes",
            target="rlinf_plugin_bench.environment:make_simulator",
            config="rlinf_plugin_bench.config:PeersConfig",
            facts="rlinf_plugin_bench.config:facts",
            capabilities=[Capability.STATE, Capability.SUCCESS, Capability.ACTION_CHUNK],
        )
    ]
