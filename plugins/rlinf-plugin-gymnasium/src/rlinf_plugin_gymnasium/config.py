"""Options of the simulator ``gymnasium``. A new option goes here, with its help below it."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlinf_core.api import Config

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class GymnasiumConfig(Config):
    """A Gymnasium environment, by ``id`` or by ``factory``."""

    id: str | None = None
    """Id of a registered environment, such as "Pendulum-v1"; "package:Name-v0" imports the package
    that registers it first."""

    factory: str | None = None
    """Instead of an id: "package.module:function", called as ``function(num_envs=N, **kwargs)``,
    which returns a ``gymnasium.vector.VectorEnv``."""

    kwargs: dict[str, Any] = Field(default={})
    """What the environment, or the factory, is made with besides."""

    max_episode_steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Steps after which an episode is truncated; null means as the id is registered."""

    vectorization: Literal["sync", "async", "vector_entry_point"] | None = None
    """How environments of an id are stepped: one after another (null is that, too), in a process
    each, or by the vector environment that is registered with the id."""

    success: str | None = Field(default=None, min_length=1)
    """Key of a step's ``info`` that says whether the task counts as solved, such as "success" or
    "is_success". Without this or ``success_reward`` a run reports no success."""

    success_reward: float | None = None
    """Instead of a key: a step counts as solved if its reward is at least this."""

    train_states: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    """Number of initial states to train on; a state is a seed, so many cost nothing."""

    test_states: int = Field(default=100, ge=1, le=1_000_000_000)
    """Number of initial states to evaluate on; none of them is a training state."""

    seed_bits: int = Field(default=64, ge=16, le=64)
    """How wide a seed the environment takes; 31 suits those that refuse larger ones."""

    render: bool | None = None
    """Whether environments of an id are made so that they can be filmed; null is yes where they
    can be. Nothing is drawn before a picture is asked for."""

    @field_validator("id")
    @classmethod
    def _is_registered(cls, name: str | None) -> str | None:
        if name is not None and ":" not in name:
            import gymnasium  # only where an id is looked up

            try:
                gymnasium.spec(name)
            except gymnasium.error.Error as error:
                raise ValueError(
                    f"{error} Where a package registers it, write 'package:{name}'"
                ) from None
        return name

    @field_validator("factory")
    @classmethod
    def _is_a_target(cls, target: str | None) -> str | None:
        if target is not None and not _FACTORY.fullmatch(target):
            raise ValueError(f"factory {target!r}; wanted 'package.module:function'")
        return target

    @model_validator(mode="after")
    def _one_source_and_nothing_unread(self) -> Self:
        if (self.id is None) == (self.factory is None):
            raise ValueError("give an id, such as 'Pendulum-v1', or a factory: one, not both")
        unread = [
            name
            for name in ("max_episode_steps", "vectorization", "render")
            if self.factory is not None and getattr(self, name) is not None
        ]
        if unread:
            raise ValueError(
                f"{' and '.join(unread)} would not be read: a factory makes environments as it "
                "likes; leave it out, or hand it on through kwargs"
            )
        if self.success_reward is not None and self.success is not None:
            raise ValueError("success and success_reward both say what counts as solved; give one")
        return self
