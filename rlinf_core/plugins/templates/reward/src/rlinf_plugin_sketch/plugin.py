"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_rewards():
    return [
        ComponentSpec(
            name="sketch",
            summary="1 where the answer ends with the solution",
            target="rlinf_plugin_sketch.reward:SketchReward",
            config="rlinf_plugin_sketch.config:SketchConfig",
        )
    ]
