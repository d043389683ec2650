"""What this plugin provides, as data."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_simulators() -> list[ComponentSpec]:
    """Provide the simulators ``peers`` and ``busy``."""
    return [
        ComponentSpec(
            name="peers",
            summary="The environments that peers are measured on, in our processes",
            target="rlinf_plugin_bench.environment:make_simulator",
            config="rlinf_plugin_bench.config:PeersConfig",
            facts="rlinf_plugin_bench.config:facts",
            capabilities=[Capability.STATE, Capability.SUCCESS, Capability.ACTION_CHUNK],
        ),
        ComponentSpec(
            name="busy",
            summary="A toy world whose steps cost what they are told to",
            target="rlinf_plugin_bench.busy:BusySimulator",
            config="rlinf_plugin_bench.config:BusyConfig",
            facts="rlinf_plugin_bench.config:busy_facts",
            capabilities=[Capability.STATE, Capability.SUCCESS, Capability.ACTION_CHUNK],
        ),
    ]


@hookimpl
def rlinf_models() -> list[ComponentSpec]:
    """Provide the model ``busy``."""
    return [
        ComponentSpec(
            name="busy",
            summary="A policy of the toy world that costs what it is told to",
            target="rlinf_plugin_bench.busy:BusyPolicy",
            config="rlinf_plugin_bench.config:BusyConfig",
            capabilities=[Capability.STATE, Capability.VALUE, Capability.LOGPROB],
        )
    ]
