"""The simulator ``sketch``: one environment class, run in processes."""

from rlinf_core.api import EnvSlots, ProcessSimulator
from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.facts import make_spaces


def make_simulator(config: SketchConfig, slots: EnvSlots) -> ProcessSimulator:
    """Return a simulator; its processes start in the background."""
    return ProcessSimulator(
        slots,
        make_spaces(),
        "rlinf_plugin_sketch.environment:SketchEnvironment",
        {"max_episode_steps": config.max_episode_steps, "push": config.push},
        states={"train": config.train_states, "test": config.test_states},
        processes=config.processes,
        imports=["rlinf_plugin_sketch.environment"],
    )
