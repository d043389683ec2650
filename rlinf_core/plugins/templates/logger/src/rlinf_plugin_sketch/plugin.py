"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_loggers():
    return [
        ComponentSpec(
            name="sketch",
            summary="One row per iteration in metrics.csv.",
            target="rlinf_plugin_sketch.logger:SketchLogger",
            config="rlinf_plugin_sketch.config:SketchConfig",
        )
    ]
