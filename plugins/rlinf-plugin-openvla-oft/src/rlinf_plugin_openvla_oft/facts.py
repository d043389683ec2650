"""What a configured ``openvla-oft`` weighs, and what it refuses before a run; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlinf_plugin_openvla.architecture import linear
from rlinf_plugin_openvla.facts import describe
from rlinf_plugin_openvla.published import Published

from rlinf_core.api import (
    Capability,
    Facts,
    Level,
    RequestError,
    Spaces,
    Statistics,
    Unknown,
    choose_statistics,
)
from rlinf_plugin_openvla_oft.config import OFTConfig


def choose_proprio(
    config: OFTConfig, published: Published, spaces: Spaces | None
) -> Statistics | None:
    """Return the statistics of the robot's state, or None where the checkpoint does not read it.

    Raises:
        RequestError: the simulator shows no state, or one of another width.
    """
    if not config.proprio:
        return None
    width = None
    if spaces is not None:
        state = spaces.observation.spaces.get("state")
        if state is None or state.shape is None:
            raise RequestError(
                "model.proprio is true, but the simulator shows no state, only "
                f"{sorted(spaces.observation.spaces)}; choose one that does, or another checkpoint"
            )
        width = state.shape[0]
    return choose_statistics(published.datasets, config.unnorm_key, of="proprio", width=width)


def facts(config: OFTConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return parameters and bytes; refuse what the checkpoint cannot do.

    Args:
        config: of the model.
        upstream: facts of the sections before this one; ``simulator`` gives widths and cameras,
            ``chunk`` the number of actions a call.

    Raises:
        CheckpointError: the folder is none of OpenVLA.
        RequestError: chunk, statistics, state or cameras do not fit.
    """
    published = Published(config.checkpoint)
    architecture, hidden = published.architecture, published.architecture.hidden
    spaces = getattr(upstream.get("simulator"), "spaces", Unknown("there is no simulator"))
    proprio = choose_proprio(config, published, None if isinstance(spaces, Unknown) else spaces)
    state = proprio.width if proprio else 0
    more = linear(state, hidden) + linear(hidden, hidden) if state else 0
    if config.film:
        more += sum(2 * tower.depth * linear(hidden, tower.width) for tower in architecture.towers)
    tokens = config.head == "tokens"
    if not tokens:
        wide = hidden * published.actions(config.unnorm_key, None).width
        block = 2 * hidden + linear(hidden, hidden)
        more += 2 * wide + linear(wide, hidden) + 2 * block + 2 * hidden
        more += linear(hidden, wide // hidden)
    said = describe(config, upstream, published, None, more, replay=4 * state)
    level = Level.FULL if tokens else Level.UNSUPPORTED
    trained = dict.fromkeys((Capability.LOGPROB, Capability.ENTROPY), level)
    return replace(said, capabilities={**said.capabilities, **trained})
