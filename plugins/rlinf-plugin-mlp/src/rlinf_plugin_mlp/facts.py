"""What a configured ``mlp`` weighs, counted without torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Facts, Unknown
from rlinf_plugin_mlp.config import MLPConfig


def facts(config: MLPConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return parameters and sizes, which follow from the simulator's spaces and the chunk.

    Args:
        config: of the model.
        upstream: facts of the sections before this one; ``simulator`` gives the widths and
            ``chunk``, where there is one, the number of actions a call.
    """
    spaces = getattr(upstream.get("simulator"), "spaces", Unknown("there is no simulator"))
    if isinstance(spaces, Unknown):
        reason = f"the width of state and action is not known: {spaces.reason}"
        return Facts(parameters=Unknown(reason), bytes=Unknown(reason), act_bytes=Unknown(reason))
    (state,) = spaces.observation["state"].shape
    (action,) = spaces.action.shape
    outputs = int(upstream.get("chunk", 1)) * action
    actor = _parameters(state, *config.hidden, outputs) + outputs  # and a deviation per output
    critic = _parameters(state, *config.hidden, 1)
    statistics = 8 * (1 + 2 * state) if config.normalize_observations else 0  # float64
    return Facts(
        parameters=actor + critic,
        bytes=4 * (actor + critic) + statistics,
        act_bytes=4 * (outputs + 1 + state + outputs),  # logp, value; state and sample to replay
    )


def _parameters(*widths: int) -> int:
    return sum((i + 1) * o for i, o in itertools.pairwise(widths))
