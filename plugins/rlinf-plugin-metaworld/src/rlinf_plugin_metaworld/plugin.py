"""What this distribution provides. Only data: nothing heavy is imported to list it."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_simulators() -> list[ComponentSpec]:
    """Provide the simulator ``metaworld``."""
    return [
        ComponentSpec(
            name="metaworld",
            summary="Meta-World: 50 manipulation tasks of a Sawyer arm, state observations (CPU)",
            target="rlinf_plugin_metaworld.simulator:make_simulator",
            config="rlinf_plugin_metaworld.config:MetaWorldConfig",
            facts="rlinf_plugin_metaworld.facts:facts",
            probe="rlinf_plugin_metaworld.probe:probe",
            capabilities=[
                Capability.STATE,
                Capability.IMAGES,
                Capability.INSTRUCTION,
                Capability.SUCCESS,
                Capability.RENDER,
                Capability.RESTORE,
                Capability.SHARED_STATES,
                Capability.ACTION_CHUNK,
            ],
            requires=("metaworld", "mujoco"),
        )
    ]
