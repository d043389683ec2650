"""The model ``mlp``: a Gaussian actor and a critic over a state vector.

Separate networks, tanh, an actor head a hundred times smaller and normalised observations are what
Andrychowicz et al. 2021 recommend ("What matters in on-policy reinforcement learning?", arXiv
2006.05990, sections 3.2 and 3.3); orthogonal weights, a standard deviation that does not depend on
the state and clamped actions are details of Huang et al. 2022 ("The 37 implementation details of
proximal policy optimization"). What a policy must do is stated in ``rlinf_core.protocols.policy``;
another activation is one more entry in ``ACTIVATIONS`` and in ``config.py``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlinf_core.api import (
    Act,
    Batch,
    CapabilityError,
    Draws,
    Eval,
    LogprobLevel,
    Mode,
    RLInputError,
    Spaces,
    rl,
)
from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.normalizer import Normalizer

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class MLPPolicy(nn.Module):
    """Acts by C x A independent Gaussians whose means come from the state.

    A sample is in units of half an action range: -1 and 1 are the bounds. It is scaled to the
    simulator's units and clamped to its bounds *after* sampling, and the log-prob is that of the
    sample, not of the clamped action (whose density has atoms at the bounds). A dimension with an
    infinite bound is not scaled.

    Args:
        config: widths, activation and so on.
        spaces: ``observation["state"]`` of shape [S] and a box of actions [A].
        chunk: C, the number of actions a call.

    Raises:
        CapabilityError: the simulator shows no flat state or takes no flat vector of actions.
    """

    logprob_level = LogprobLevel.TOKEN
    low: Tensor
    high: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, config: MLPConfig, spaces: Spaces, chunk: int) -> None:
        super().__init__()
        state = _width("observation['state']", spaces.observation.spaces.get("state"), spaces)
        action = _width("action", spaces.action, spaces)
        self.shape = (chunk, action)  # of one sample, [C, A]
        activation = ACTIVATIONS[config.activation]
        self.actor = perceptron((state, *config.hidden, chunk * action), activation, head_gain=0.01)
        self.critic = perceptron((state, *config.hidden, 1), activation, head_gain=1.0)
        self.log_std = nn.Parameter(torch.full(self.shape, config.log_std_init))  # [C, A]
        self.normalizer = (
            Normalizer(state, config.observation_clip) if config.normalize_observations else None
        )
        # The bounds come from the simulator, so they are not part of the saved weights.
        low, high = torch.as_tensor(spaces.action.low), torch.as_tensor(spaces.action.high)
        finite = low.isfinite() & high.isfinite()
        bounds = {
            "low": low,
            "high": high,
            "centre": torch.where(finite, low / 2 + high / 2, 0.0),
            "scale": torch.where(finite, high / 2 - low / 2, 1.0),
        }
        for name, bound in bounds.items():
            self.register_buffer(name, bound.float(), persistent=False)  # [A]

    @torch.no_grad()
    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows.

        Args:
            obs: ``state`` [N, S].
            draws: a row of random numbers each, for mode SAMPLE.
            mode: SAMPLE draws, GREEDY takes the mean, VALUE only asks the critic.

        Returns:
            actions [N, C, A], logp [N, C, A], value [N], replay of ``state`` and ``sample``.

        Raises:
            RLInputError: mode SAMPLE without draws.
        """
        x = self._features(obs["state"])  # [N, S]
        value = self._value(x)  # [N]
        if mode is Mode.VALUE:
            return Act(None, None, value, None)
        mean, std = self._gaussian(x)  # [N, C, A] each
        sample = mean
        if mode is Mode.SAMPLE:
            if draws is None:
                raise RLInputError("act(mode=SAMPLE) without draws; pass the rows' Draws")
            sample = mean + std * draws.normal(*self.shape).to(mean.device)
        actions = (self.centre + self.scale * sample).clamp(self.low, self.high)  # [N, C, A]
        logp = rl.gaussian_logprobs(sample, mean, std)  # [N, C, A]
        return Act(actions, logp, value, Batch({"state": obs["state"], "sample": sample}))

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded samples under the weights of now, with gradients.

        Args:
            replay: ``state`` [B, S] and ``sample`` [B, C, A], as :meth:`act` returned them.

        Returns:
            logp [B, C, A], entropy [B, C, A] and value [B].
        """
        x = self._features(replay["state"])  # [B, S]
        mean, std = self._gaussian(x)  # [B, C, A] each
        logp = rl.gaussian_logprobs(replay["sample"], mean, std)  # [B, C, A]
        return Eval(logp, rl.gaussian_entropy(std), self._value(x))

    def observe(self, obs: Batch, valid: Tensor, reduce: rl.Reduce) -> None:
        """Take the states of a finished iteration into the running mean and deviation.

        Args:
            obs: ``state`` [T, N, S].
            valid: bool [T, N]; other states are not counted.
            reduce: sums over ranks.
        """
        if self.normalizer is not None:
            self.normalizer.update(obs["state"][valid], reduce)

    def lora_targets(self) -> tuple[str, ...]:
        """Return nothing: there are no pretrained weights that low rank could spare."""
        return ()

    def shards(self) -> tuple[str, ...]:
        """Return nothing: it is small enough to be one unit."""
        return ()

    def _features(self, state: Tensor) -> Tensor:
        return state.float() if self.normalizer is None else self.normalizer(state)

    def _value(self, x: Tensor) -> Tensor:
        value: Tensor = self.critic(x).squeeze(-1)  # [B]
        return value.float()  # also under autocast

    def _gaussian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.actor(x).float().unflatten(-1, self.shape)  # [B, C, A]
        return mean, self.log_std.exp().expand_as(mean)


def perceptron(
    widths: tuple[int, ...], activation: type[nn.Module], head_gain: float
) -> nn.Sequential:
    """Return linear layers of these widths with activations between, orthogonally initialised.

    Gain sqrt(2) inside and ``head_gain`` for the last layer, biases 0: Huang et al. 2022, detail 2.
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        last = i == len(widths) - 2
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, head_gain if last else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, activation()]
    return nn.Sequential(*layers)


def _width(name: str, space: Space[Any] | None, spaces: Spaces) -> int:
    """Return how long a flat vector is, refusing what is none."""
    shape = None if space is None else space.shape
    if shape is None or len(shape) != 1:
        raise CapabilityError(
            f"the simulator's {name} has shape {shape}, but the model mlp reads a state vector [S] "
            "and gives actions [A]; choose a simulator with both, or a model that reads "
            f"{sorted(spaces.observation.spaces)}"
        )
    return int(shape[0])
