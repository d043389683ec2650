"""Flow matching: times, the loss, and how one denoise step is sampled.

Time runs from 1 (noise) to 0 (action): ``x_t = t noise + (1 - t) action``, and the model's velocity
is that of ``noise - action`` (pi0, arXiv 2410.24164, section IV, with time turned round). The
samplers are those of pi-RL (arXiv 2510.25889, section 4) and of CPS (arXiv 2509.05952). Another one
is a function here, an entry in ``SAMPLERS`` and a name in ``config.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def timesteps(steps: int, device: torch.device | None = None) -> Tensor:
    """Return float32 [N + 1]: from 1 down to 1/N in equal steps, and 0."""
    return torch.cat(
        [torch.linspace(1, 1 / steps, steps, device=device), torch.zeros(1, device=device)]
    )


def interpolate(noise: Tensor, actions: Tensor, time: Tensor) -> Tensor:
    """Return ``x_t`` [B, H, D] at times [B]."""
    t = time[:, None, None]
    return t * noise + (1 - t) * actions


def training_time(uniform: Tensor) -> Tensor:
    """Return times [B] to train at, from uniform numbers in (0, 1).

    ``0.999 b + 0.001`` with b from Beta(1.5, 1), whose distribution function is ``b^1.5``: noisy
    times come more often.
    """
    return (0.999 * uniform ** (1 / 1.5) + 0.001).float()


@dataclass(frozen=True)
class Step:
    """One denoise step of B rows, everything of the shape [B, 1, 1] or [B, H, D].

    Attributes:
        t: the time before it.
        next: the time after it.
        second: the second of all times, [].
        level: eta.
        learned: deviation from the noise head, only for ``flow_noise``.
    """

    t: Tensor
    next: Tensor
    second: Tensor
    level: Tensor
    learned: Tensor | None = None


def ode(step: Step) -> tuple[Tensor, Tensor]:
    """No noise: an Euler step."""
    return step.next, torch.zeros_like(step.t)


def flow_sde(step: Step) -> tuple[Tensor, Tensor]:
    """The stochastic differential equation with the same marginals; deviation s sqrt(t - t')."""
    edge = torch.where(step.t == 1, step.second, step.t)  # 1 - t would be 0
    s = step.level * torch.sqrt(step.t / (1 - edge))
    delta = step.t - step.next
    return step.next - s.square() * delta / (2 * step.t), torch.sqrt(delta) * s


def flow_cps(step: Step) -> tuple[Tensor, Tensor]:
    """Part of the noise is renewed and its amount kept; none in the last step."""
    angle = math.pi / 2 * step.level
    return step.next * torch.cos(angle), step.next * torch.sin(angle)


def flow_noise(step: Step) -> tuple[Tensor, Tensor]:
    """An Euler step, and noise as large as a head of the model says."""
    assert step.learned is not None
    return step.next, step.learned


SAMPLERS: dict[str, Callable[[Step], tuple[Tensor, Tensor]]] = {
    "ode": ode,
    "flow_sde": flow_sde,
    "flow_cps": flow_cps,
    "flow_noise": flow_noise,
}
"""Each returns the weight of the noise's end of the line, and the deviation."""


def transition(sampler: str, x: Tensor, velocity: Tensor, step: Step) -> tuple[Tensor, Tensor]:
    """Return mean and deviation [B, H, D] of what follows ``x`` [B, H, D].

    The mean is on the line through x along its velocity: ``x0`` is where it ends in an action,
    ``x1`` where in noise.
    """
    weight, std = SAMPLERS[sampler](step)
    x0 = x - velocity * step.t
    x1 = x + velocity * (1 - step.t)
    return x0 * (1 - step.next) + x1 * weight, std.expand_as(x)
