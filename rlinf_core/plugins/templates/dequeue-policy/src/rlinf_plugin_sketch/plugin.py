"""What this distribution provides. Only data: listing plugins imports this module and no other."""

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_dequeue_policies():
    return [
        ComponentSpec(
            name="sketch",
            summary="The heaviest item first, the oldest among equals",
            target="rlinf_plugin_sketch.policy:SketchPolicy",
        )
    ]
