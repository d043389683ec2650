"""The component's target: a Gymnasium environment behind the ``Simulator`` protocol.

The vector environment is made in ``vector.py``; what makes a simulator of it, episodes and resets
included, is ``rlinf_core.api.from_vector_env``.
"""

from __future__ import annotations

from rlinf_core.api import EnvSlots, Simulator, from_vector_env
from rlinf_plugin_gymnasium.actions import actions_of
from rlinf_plugin_gymnasium.config import GymnasiumConfig
from rlinf_plugin_gymnasium.vector import SUCCESS, make_vector_env


def make_simulator(config: GymnasiumConfig, slots: EnvSlots) -> Simulator:
    """Return a simulator of ``config.id`` or of what ``config.factory`` makes.

    Raises:
        SimulatorError: there is no such environment, or its spaces or its way to reset suit no
            policy or run.
    """
    env = make_vector_env(config, len(slots.ids))
    try:
        action = actions_of(env.single_action_space)
    except BaseException:
        env.close()
        raise
    return from_vector_env(
        lambda: env,
        slots,
        states={"train": config.train_states, "test": config.test_states},
        action=action,
        success=config.success or SUCCESS,
        seed_bits=config.seed_bits,
    )
