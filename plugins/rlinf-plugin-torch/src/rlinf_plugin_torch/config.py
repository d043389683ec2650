"""Options of the training backend ``torch``. A new option goes here, with its help; no torch."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlinf_core.api import Config

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


class Schedule(Config):
    """How the learning rate changes from iteration to iteration."""

    name: Literal["constant", "linear", "cosine"] = "constant"
    """The curve after the warm-up, from 1 to ``final`` over the rest of ``iterations``."""

    iterations: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Iterations of the whole run: write ${steps}, the run's own number."""

    warmup: int = Field(default=0, ge=0, le=1_000_000_000)
    """The first iterations, over which the rate grows linearly; 0 starts at the full rate."""

    final: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the learning rate that is left at the end; not read by "constant"."""

    @model_validator(mode="after")
    def _know_the_end(self) -> Self:
        if self.name != "constant" and self.iterations is None:
            raise ValueError(
                f"schedule {self.name!r} needs schedule.iterations, the number of iterations "
                'of the run; set it, or choose "constant"'
            )
        if self.iterations is not None and self.warmup >= self.iterations:
            raise ValueError(
                f"schedule.warmup is {self.warmup} and schedule.iterations {self.iterations}; "
                "the warm-up must be over before the run is"
            )
        return self

    def factor(self, iteration: int) -> float:
        """Return what the learning rate is multiplied by in an iteration, counted from 0.

        Cosine: Loshchilov and Hutter 2016, arXiv 1608.03983, equation 5, without restarts.
        """
        if iteration < self.warmup:
            return (iteration + 1) / (self.warmup + 1)
        if self.name == "constant" or self.iterations is None:
            return 1.0
        done = min(1.0, (iteration - self.warmup) / (self.iterations - self.warmup))
        left = 1.0 - done if self.name == "linear" else (1.0 + math.cos(math.pi * done)) / 2
        return self.final + (1.0 - self.final) * left


class ParameterGroup(Config):
    """Parameters that are trained with other options than the rest."""

    match: str
    """A regular expression, searched in the names of parameters; anchor it with ^ and $."""

    learning_rate: float | None = Field(default=None, ge=0.0)
    """Their learning rate; null means ``learning_rate`` times ``learning_rate_scale``."""

    learning_rate_scale: float = Field(default=1.0, ge=0.0)
    """Multiplies the common learning rate."""

    weight_decay: float | None = Field(default=None, ge=0.0)
    """Their weight decay; null means the common one."""

    @field_validator("match")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if self.learning_rate is not None and self.learning_rate_scale != 1.0:
            raise ValueError("give learning_rate or learning_rate_scale, not both")
        return self


class TorchConfig(Config):
    """Training with plain PyTorch in one process on one device."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Which optimizer; "adamw" decays weights directly, "adam" through the gradient."""

    learning_rate: float = Field(default=3e-4, ge=0.0)
    """Step size, before the schedule."""

    betas: tuple[Rate, Rate] = (0.9, 0.999)
    """Adam's decay rates of the first and second moment."""

    eps: float = Field(default=1e-5, gt=0.0)
    """Added to Adam's denominator. 1e-5 is customary for PPO, where gradients are small."""

    momentum: Rate = 0.0
    """SGD's momentum."""

    weight_decay: float = Field(default=0.0, ge=0.0)
    """Pulls weights towards 0."""

    groups: tuple[ParameterGroup, ...] = ()
    """Parameters with options of their own. A parameter may match one group; the others use the
    common options."""

    max_grad_norm: float | None = Field(default=0.5, gt=0.0)
    """Gradients, all together, are scaled down to this Euclidean norm; null means never."""

    nonfinite: Literal["raise", "skip"] = "raise"
    """What a NaN or infinite gradient does: end the run, or leave out this one step."""

    schedule: Schedule = Schedule()
    """How the learning rate changes over the run."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """In which precision the policy is evaluated; weights and optimizer are always fp32."""

    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads that torch may use in this process; null leaves torch's own choice."""

    deterministic: bool = False
    """Use only operations that give the same bits every time; slower on CUDA."""
