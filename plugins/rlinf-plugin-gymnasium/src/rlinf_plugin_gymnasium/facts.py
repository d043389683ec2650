"""What can be said about a configured environment without importing its library.

Gymnasium tells the spaces of an environment only once it is made. Those of Gymnasium itself that
need nothing but NumPy are made and asked; of the others nothing is known before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlinf_core.api import Capability, Facts, Level, Spaces, Unknown
from rlinf_plugin_gymnasium.config import GymnasiumConfig

LIGHT = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Where the environments that need nothing but NumPy are defined."""


def facts(config: GymnasiumConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the spaces where that is cheap, and whether success is known to be told."""
    told = config.success_reward is not None or config.success is not None
    capabilities = {Capability.SUCCESS: Level.FULL} if told else {}
    return Facts(parameters=0, bytes=0, spaces=_spaces(config), capabilities=capabilities)


def _spaces(config: GymnasiumConfig) -> Spaces | Unknown:
    if config.id is None or ":" in config.id:
        return Unknown(f"{config.id or config.factory} tells its spaces only when it is made")
    import gymnasium
    from gymnasium import spaces as gym

    from rlinf_plugin_gymnasium.actions import actions_of

    spec = gymnasium.spec(config.id)
    if not str(spec.entry_point).startswith(LIGHT):
        return Unknown(f"{config.id} tells its spaces only when it is made")
    env = gymnasium.make(spec, disable_env_checker=True, **config.kwargs)
    try:
        shown = gym.flatten_space(env.observation_space)
        if not isinstance(shown, gym.Box):
            return Unknown(f"{config.id} shows {env.observation_space}, which is no box")
        low, high = shown.low.astype(np.float32), shown.high.astype(np.float32)
        state = gym.Box(low, high, dtype=np.float32)
        return Spaces(gym.Dict({"state": state}), actions_of(env.action_space)[0])
    finally:
        env.close()
