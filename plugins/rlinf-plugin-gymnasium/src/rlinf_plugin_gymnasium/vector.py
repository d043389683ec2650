"""The vector environment of a configuration: N environments of an id, or what a factory makes.

How single environments are wrapped stands in :func:`_one`, what is added to the vector environment
in :class:`Reported`; a fourth way to make one is one more branch of :func:`make_vector_env`.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from rlinf_core.api import SimulatorError
from rlinf_plugin_gymnasium.config import GymnasiumConfig

SUCCESS = "success"
"""Key of ``info`` under which :class:`Reported` tells it, where no other was named."""
_RGB = "rgb_array"


def make_vector_env(config: GymnasiumConfig, count: int) -> VectorEnv[Any, Any, Any]:
    """Return ``count`` environments, of which none resets itself unless it was made to.

    Raises:
        SimulatorError: the id or the factory cannot be found, or what it makes is none.
    """
    one = None
    if config.factory is not None:
        env = _found(config.factory)(num_envs=count, **config.kwargs)
        if not isinstance(env, VectorEnv):
            raise SimulatorError(
                f"factory {config.factory} returned {env!r}; wanted a gymnasium.vector.VectorEnv"
            )
    else:
        spec = find_spec(config)
        options = _options(config, spec)
        if config.vectorization == "vector_entry_point":
            if spec.vector_entry_point is None:
                raise SimulatorError(
                    f"{spec.id} is registered without a vector entry point; set vectorization to "
                    "'sync' or 'async'"
                )
            env = gymnasium.make_vec(
                spec, count, vectorization_mode="vector_entry_point", **options
            )
        else:
            one = functools.partial(_one, spec, options)
            env = _together(config, one, count)
    return Reported(env, config, one)


def find_spec(config: GymnasiumConfig) -> EnvSpec:
    """Return what is registered under ``config.id``, importing who registers it."""
    assert config.id is not None
    package, _, name = config.id.rpartition(":")
    try:
        if package:
            importlib.import_module(package)
        return gymnasium.spec(name)
    except (ImportError, gymnasium.error.Error) as error:
        raise SimulatorError(f"no environment {config.id!r}: {error}") from error


class Reported(VectorWrapper):  # type: ignore[type-arg]
    """A vector environment that says what counts as solved, and draws only where that works.

    Args:
        env: the environment.
        config: what counts as solved.
        one: makes a single environment to try drawing with, since a failure ends a process of
            its own; None tries it with ``env`` itself.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        config: GymnasiumConfig,
        one: Callable[[], gymnasium.Env[Any, Any]] | None,
    ) -> None:
        super().__init__(env)
        self._reward, self._one = config.success_reward, one
        self._draws: bool | None = None

    def step(self, actions: Any) -> Any:
        """Do a step; ``info`` says where the reward is high enough, if that is what counts."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if self._reward is not None:
            solved = {SUCCESS: np.asarray(reward) >= self._reward}  # [N]
            info = {**info, **solved}
            if "final_info" in info:  # of episodes that ended in this step (SAME_STEP)
                info["final_info"] = {**info["final_info"], **solved}
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """Return a picture per environment, uint8 [H, W, 3], or None where nothing can draw."""
        if self._draws is None:
            try:
                self._try()
                self._draws = True
            except Exception as error:
                self._draws = False
                warnings.warn(f"{self.env} draws no pictures: {error}", stacklevel=2)
        return self.env.render() if self._draws else None

    def _try(self) -> None:
        if self._one is None:
            self.env.render()
            return
        env = self._one()
        try:
            env.reset()
            env.render()
        finally:
            env.close()


def _together(
    config: GymnasiumConfig, one: Callable[[], gymnasium.Env[Any, Any]], count: int
) -> VectorEnv[Any, Any, Any]:
    mode = AutoresetMode.DISABLED  # the run decides which state comes next
    if config.vectorization != "async":
        return SyncVectorEnv([one] * count, autoreset_mode=mode)
    # Never a plain fork: this process has threads, and a fork copies their locks.
    known = multiprocessing.get_all_start_methods()
    context = "forkserver" if "forkserver" in known else "spawn"
    try:
        return AsyncVectorEnv([one] * count, context=context, autoreset_mode=mode)
    except (EOFError, OSError) as error:
        raise SimulatorError(
            f"a process of vectorization 'async' ended while it made {config.id} (its own words "
            "stand above): what 'async' runs must be importable and stand behind "
            "if __name__ == '__main__'; set vectorization to 'sync' to do without processes"
        ) from error


def _one(spec: EnvSpec, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a single environment whose observations are boxes; others are flattened to one."""
    env = gymnasium.make(spec, disable_env_checker=True, **options)
    space = env.observation_space
    parts = space.spaces.values() if isinstance(space, gym.Dict) else [space]
    if all(isinstance(part, gym.Box) for part in parts):
        return env
    return gymnasium.wrappers.FlattenObservation(env)


def _options(config: GymnasiumConfig, spec: EnvSpec) -> dict[str, Any]:
    """Return what one environment is made with besides its id."""
    options = dict(config.kwargs)
    if config.max_episode_steps is not None:
        options["max_episode_steps"] = config.max_episode_steps
    if config.render is not False and "render_mode" not in options:
        creator: Any = spec.entry_point
        creator = load_env_creator(creator) if isinstance(creator, str) else creator
        if _RGB in (getattr(creator, "metadata", None) or {}).get("render_modes", ()):
            options["render_mode"] = _RGB
    return options


def _found(target: str) -> Callable[..., Any]:
    """Return what ``"package.module:function"`` names."""
    module, _, name = target.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SimulatorError(f"factory {target!r} cannot be imported: {error}") from error
    return found
