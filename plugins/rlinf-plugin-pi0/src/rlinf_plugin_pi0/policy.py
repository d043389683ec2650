"""The models ``pi0`` and ``pi05``: they act by denoising, and score the steps they took.

A chunk of actions is a chain from noise to action. Sampling some steps with noise makes each a
Gaussian, so that a policy gradient has a density (pi-RL, arXiv 2510.25889). The chain and which of
its steps were noisy are kept; ``evaluate`` makes those steps' Gaussians again from the same inputs
by the same code, which is why its log-probs are equal to those of ``act`` where shapes are.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rlinf_core.api import (
    Act,
    Batch,
    Draws,
    Eval,
    LogprobLevel,
    Mode,
    RLInputError,
    Spaces,
    ValueHead,
    rl,
)
from rlinf_plugin_pi0 import checkpoint, flow, published
from rlinf_plugin_pi0.config import Pi0Config
from rlinf_plugin_pi0.facts import Fitted, in_half
from rlinf_plugin_pi0.interface import Interface
from rlinf_plugin_pi0.model import PiModel, Prefix
from rlinf_plugin_pi0.noise import NoiseHead

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Linear layers of a Gemma layer, which low-rank adapters attach to."""


class PiPolicy(PiModel):
    """Acts on camera images, a state and an instruction.

    Log-probs are per dimension; only the run's chunk and the simulator's action dimensions count of
    the longer and wider chunk that is denoised.

    Args:
        config: sizes, checkpoint, sampler and so on.
        spaces: ``images`` by camera, ``state`` [S], ``task``, and a box of actions [A].
        chunk: C, the number of actions a call.

    Raises:
        CapabilityError: the simulator lacks something, or it is too wide.
        CheckpointError: the checkpoint does not fit.
        RequestError: chunk, statistics or tokenizer do not fit.
    """

    adaptive_norms: ClassVar[bool]
    logprob_level = LogprobLevel.TOKEN
    iterations: Tensor

    def __init__(self, config: Pi0Config, spaces: Spaces, chunk: int) -> None:
        published.check_sizes(config, chunk)
        fitted = Fitted(config, spaces)
        super().__init__(config, self.adaptive_norms)
        self.config, self.chunk, self.action_width = config, chunk, fitted.action
        self.interface = Interface(config, fitted, spaces)
        if config.value != "none":
            width = config.vlm.width if config.value == "vlm" else config.expert.width
            hidden = config.value_hidden
            self.value_head = ValueHead(width, 1, hidden, activation="relu", last_bias=True)
        if config.sampler == "flow_noise":
            self.noise_head = NoiseHead(config.expert.width, config.action_dim, config.noise_range)
        if config.noise_annealing is not None:
            self.register_buffer("iterations", torch.zeros((), dtype=torch.int64))
        if config.checkpoint is not None:
            checkpoint.load(self, config.checkpoint)
        if config.precision == "bfloat16":
            for name, parameter in self.named_parameters():
                parameter.data = parameter.data.bfloat16() if in_half(name) else parameter.data
        self.vlm.requires_grad_(config.train_vlm)
        for part in (self.vlm["language_model"], self.expert):
            part.checkpointing = config.gradient_checkpointing

    # --- the protocol ----------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows.

        Without noise (GREEDY, VALUE) the chain starts from numbers that are the same for every row
        and call.

        Args:
            obs: ``images`` {camera: uint8 [N, H, W, 3]}, ``state`` [N, S], ``task``, N strings.
            draws: a row of random numbers each, for mode SAMPLE.
            mode: SAMPLE denoises with noise, GREEDY without, VALUE gives the value only.

        Returns:
            actions [N, C, A], logp [N, C, A], value [N] and replay. The value is the mean over all
            denoise steps where it is read from the expert.

        Raises:
            RLInputError: mode SAMPLE without draws.
        """
        if mode is Mode.SAMPLE and draws is None:
            raise RLInputError("act(mode=SAMPLE) without draws; pass the rows' Draws")
        if mode is Mode.VALUE and self.config.value == "none":
            return Act(None, None, None, None)
        inputs = self.interface.read(obs)
        prefix = self.see(inputs)
        if mode is Mode.VALUE and self.config.value == "vlm":
            return Act(None, None, self._prefix_value(prefix), None)
        rows, device = len(obs), prefix.output.device
        noisy, first, noise = self._draw(rows, draws if mode is Mode.SAMPLE else None, device)
        level = self.noise_level().to(device).expand(rows)

        chain, values = [first], []
        logps = [self._logp(first, torch.zeros_like(first), torch.ones_like(first))]
        for k in range(self.config.denoise_steps):
            step = torch.full((rows,), k, device=device)
            out, velocity = self._velocity(prefix, inputs, chain[-1], step)
            given = out, chain[-1], velocity, step, level
            mean, std = self._gaussian("ode", *given)
            if mode is Mode.SAMPLE:
                chosen = (noisy == k).any(dim=1)[:, None, None]  # [N, 1, 1]
                other_mean, other_std = self._gaussian(self.config.sampler, *given)
                mean = torch.where(chosen, other_mean, mean)
                std = torch.where(chosen, other_std, std)
            chain.append(mean + std * noise[:, k])
            logps.append(self._logp(chain[-1], mean, std))
            values.append(self._expert_value(out))
        value = self._value(prefix, values)
        if mode is Mode.VALUE:
            return Act(None, None, value, None)

        actions = self.interface.actions(chain[-1][:, : self.chunk], obs["state"])
        if mode is Mode.GREEDY:
            return Act(actions, torch.zeros_like(actions), value, None)
        logp = self._join(logps if self.config.joint_logprob else _pick(logps[1:], noisy))
        replay = inputs.with_entries(
            chains=torch.stack(chain, dim=1), denoise_inds=noisy, noise_level=level.clone()
        )
        return Act(actions, logp, value, replay)

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded denoise steps under the weights of now, with gradients.

        Args:
            replay: as :meth:`act` returned it: the inputs, ``chains`` [B, N + 1, H, D],
                ``denoise_inds`` int64 [B, K] (K is 1, or N where log-probs are joint) and
                ``noise_level`` [B].

        Returns:
            logp [B, C, A], entropy [B, C, A] and value [B].
        """
        prefix = self.see(replay)
        chains, noisy, level = replay["chains"], replay["denoise_inds"], replay["noise_level"]
        row = torch.arange(len(replay), device=chains.device)
        logps, entropies, values = [], [], []
        if self.config.joint_logprob:
            one = torch.ones_like(chains[:, 0])
            logps.append(self._logp(chains[:, 0], torch.zeros_like(one), one))
            entropies.append(self._cut(rl.gaussian_entropy(one)))
        for step in noisy.unbind(dim=1):  # [B] each
            x, following = chains[row, step], chains[row, step + 1]  # [B, H, D]
            out, velocity = self._velocity(prefix, replay, x, step)
            mean, std = self._gaussian(self.config.sampler, out, x, velocity, step, level)
            logps.append(self._logp(following, mean, std))
            entropies.append(self._cut(rl.gaussian_entropy(std)))
            values.append(self._expert_value(out))
        return Eval(self._join(logps), self._join(entropies), self._value(prefix, values))

    def observe(self, obs: Batch, valid: Tensor, reduce: rl.Reduce) -> None:
        """Count a finished iteration, where the noise is annealed; nothing else is kept."""
        if self.config.noise_annealing is not None:
            self.iterations += 1

    def lora_targets(self) -> tuple[str, ...]:
        """Return the projections of both Gemmas' layers."""
        layers = tuple(name for name in self.shards() if "vision_tower" not in name)
        names = (name for name, _ in self.named_modules() if name.startswith(layers))
        return tuple(name for name in names if name.endswith(PROJECTIONS))

    def shards(self) -> tuple[str, ...]:
        """Return the layers of the vision tower and of both Gemmas."""
        return tuple(
            name
            for name, _ in self.named_modules()
            if name.rpartition(".layers.")[2].isdecimal() and ".layers." in name
        )

    # --- one observation -------------------------------------------------------------------------

    def see(self, inputs: Batch) -> Prefix:
        """Return the prefix of what ``interface.read`` returned; once for all denoise steps."""
        pixels, there = self.interface.pixels(inputs)
        return self.prefix(pixels, there, inputs["tokens"], inputs["token_mask"])

    def noise_level(self) -> Tensor:
        """Return eta of this iteration, float32 []."""
        annealing = self.config.noise_annealing
        if annealing is None:
            return torch.tensor(self.config.noise_level)
        share = (self.iterations / annealing.iterations).clamp(max=1.0)
        return annealing.start + (annealing.end - annealing.start) * share

    # --- one denoise step ------------------------------------------------------------------------

    def _draw(
        self, rows: int, draws: Draws | None, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return which steps are noisy [N, K], the first noise [N, H, D] and that of each step."""
        c = self.config
        shape = (c.horizon, c.action_dim)
        if draws is None:
            first = Draws(0, [0], [0]).normal(*shape).expand(rows, *shape)
            none = torch.zeros(rows, 0, dtype=torch.int64, device=device)
            return none, first.to(device), torch.zeros(1, c.denoise_steps, 1, 1, device=device)
        first = draws.normal(*shape)
        if c.joint_logprob:
            noisy = torch.arange(c.denoise_steps).expand(rows, -1)
            noise = draws.normal(c.denoise_steps, *shape)
        else:
            noisy = draws.integers(c.denoise_steps - c.ignore_last).unsqueeze(1)
            noise = draws.normal(1, *shape).expand(-1, c.denoise_steps, -1, -1)
        return noisy.contiguous().to(device), first.to(device), noise.to(device)

    def _velocity(
        self, prefix: Prefix, inputs: Batch, x: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the expert's output [B, H, width] and the velocity [B, H, D] at steps [B]."""
        time = flow.timesteps(self.config.denoise_steps, x.device)[step]  # [B]
        out = self.denoise(prefix, None if self.adaptive else inputs["state"], x, time)
        return out, self.action_out_proj(out).float()

    def _gaussian(
        self, sampler: str, out: Tensor, x: Tensor, velocity: Tensor, step: Tensor, level: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return mean and deviation [B, H, D] of what follows ``x`` at steps [B]."""
        times = flow.timesteps(self.config.denoise_steps, x.device)
        now, then = (times[k][:, None, None] for k in (step, step + 1))
        learned = self.noise_head(out) if sampler == "flow_noise" else None
        one = flow.Step(now, then, times[1], level[:, None, None], learned)
        return flow.transition(sampler, x, velocity, one)

    def _logp(self, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        return self._cut(rl.gaussian_logprobs(x, mean, std))

    def _cut(self, x: Tensor) -> Tensor:
        """Return [B, C, A] of [B, H, D]."""
        return x[:, : self.chunk, : self.action_width]

    @staticmethod
    def _join(parts: list[Tensor]) -> Tensor:
        return torch.stack(parts).mean(dim=0)

    # --- value and actions -----------------------------------------------------------------------

    def _value(self, prefix: Prefix, steps: list[Tensor | None]) -> Tensor | None:
        """Return the value [B]; that of the expert is the mean over steps."""
        if self.config.value == "expert":
            return torch.stack([value for value in steps if value is not None]).mean(dim=0)
        return self._prefix_value(prefix)

    def _prefix_value(self, prefix: Prefix) -> Tensor | None:
        if self.config.value == "none":
            return None
        there = self.interface.there.to(prefix.mask.device)
        patches, text = self.config.vision.patches, self.config.max_tokens
        read = torch.cat([there.repeat_interleave(patches), there.new_ones(text)])  # [P]
        tokens = prefix.output[:, read]
        pooled = {"mean": tokens.mean(dim=1), "first": tokens[:, 0], "last": tokens[:, -1]}
        return self._critic(pooled[self.config.value_token])

    def _expert_value(self, out: Tensor) -> Tensor | None:
        if self.config.value != "expert":
            return None
        part = out[:, : self.chunk] if self.config.value_chunk_only else out
        return self._critic(part.mean(dim=1))

    def _critic(self, features: Tensor) -> Tensor:
        features = features.detach() if self.config.detach_value else features
        value: Tensor = self.value_head(features).squeeze(-1)
        return value


class Pi0Policy(PiPolicy):
    """pi0: the state is a token before the actions."""

    adaptive_norms = False


class Pi05Policy(PiPolicy):
    """pi0.5: the state stands in the prompt, and the norms know the flow's time."""

    adaptive_norms = True


def _pick(steps: list[Tensor], noisy: Tensor) -> list[Tensor]:
    """Return each row's step [N, C, A] of all steps, as a list of one."""
    every = torch.stack(steps, dim=1)  # [N, steps, C, A]
    return [every[torch.arange(len(noisy), device=noisy.device), noisy[:, 0]]]
