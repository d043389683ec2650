"""What this distribution provides. Only data: nothing heavy is imported to list it."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, Level, hookimpl


@hookimpl
def rlinf_simulators() -> list[ComponentSpec]:
    """Provide the simulator ``maniskill``."""
    full = dict.fromkeys(
        (
            Capability.STATE,
            Capability.RENDER,
            Capability.RESTORE,
            Capability.SHARED_STATES,
            Capability.ACTION_CHUNK,
        ),
        Level.FULL,
    )
    # These depend on the options; facts tell.
    open_ = dict.fromkeys(
        (Capability.SUCCESS, Capability.IMAGES, Capability.INSTRUCTION), Level.UNKNOWN
    )
    return [
        ComponentSpec(
            name="maniskill",
            summary="ManiSkill: manipulation tasks of many robots, state or images (CPU)",
            target="rlinf_plugin_maniskill.simulator:make_simulator",
            config="rlinf_plugin_maniskill.config:ManiSkillConfig",
            facts="rlinf_plugin_maniskill.facts:facts",
            capabilities={**full, **open_},
            requires=("mani_skill", "sapien"),
            probe="rlinf_plugin_maniskill.probe:probe",
        )
    ]
