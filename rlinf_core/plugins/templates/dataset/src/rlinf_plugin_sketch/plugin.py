"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_datasets():
    return [
        ComponentSpec(
            name="sketch",
            summary="Sums of two numbers, made when they are asked for",
            target="rlinf_plugin_sketch.dataset:SketchDataset",
            config="rlinf_plugin_sketch.config:SketchConfig",
        )
    ]
