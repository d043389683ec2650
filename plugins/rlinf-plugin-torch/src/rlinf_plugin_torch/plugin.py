"""What this plugin provides, as data; imports no torch."""

from __future__ import annotations

from rlinf_core.api import Capability, ComponentSpec, hookimpl


@hookimpl
def rlinf_training_backends() -> list[ComponentSpec]:
    """Provide the training backend ``torch``."""
    return [
        ComponentSpec(
            name="torch",
            summary="Plain PyTorch on one device, or a copy on each: Adam, SGD, clipping, autocast",
            target="rlinf_plugin_torch.backend:TorchBackend",
            config="rlinf_plugin_torch.config:TorchConfig",
            facts="rlinf_plugin_torch.facts:facts",
            capabilities={Capability.OFFLOAD, Capability.DISTRIBUTED},
        )
    ]
