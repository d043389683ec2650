"""What this plugin provides, as data; imports no Gymnasium."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Level, hookimpl


@hookimpl
def rlinf_simulators() -> list[ComponentSpec]:
    """Provide the simulator ``gymnasium``."""
    return [
        ComponentSpec(
            name="gymnasium",
            summary="Any Gymnasium environment by its id, or a vector environment of your own",
            target="rlinf_plugin_gymnasium.simulator:make_simulator",
            config="rlinf_plugin_gymnasium.config:GymnasiumConfig",
            facts="rlinf_plugin_gymnasium.facts:facts",
            capabilities={
                Capability.STATE: Level.FULL,
                Capability.SHARED_STATES: Level.FULL,
                Capability.ACTION_CHUNK: Level.FULL,
                Capability.RENDER: Level.FULL,
                Capability.SUCCESS: Level.UNKNOWN,  # told by the options, see facts.py
                Capability.RESTORE: Level.UNSUPPORTED,
            },
            requires=("gymnasium",),
        )
    ]
