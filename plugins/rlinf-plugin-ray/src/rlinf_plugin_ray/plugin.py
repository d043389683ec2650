"""What this plugin provides, as data; imports no Ray."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_runtimes() -> list[ComponentSpec]:
    """Provide the runtime ``ray``."""
    return [
        ComponentSpec(
            name="ray",
            summary="One Ray actor per worker, on one machine or a cluster of them.",
            target="rlinf_plugin_ray.runtime:RayRuntime",
            config="rlinf_plugin_ray.config:RayConfig",
            probe="rlinf_plugin_ray.probe:probe",
            capabilities={Capability.PROCESSES, Capability.CLUSTER},
            requires=("ray",),
        )
    ]
