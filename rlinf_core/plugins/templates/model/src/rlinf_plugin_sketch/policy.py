"""The model ``sketch``. N rows, B recorded rows, C actions in a chunk of A dimensions, S states."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlinf_core.api import Act, Batch, Draws, Eval, LogprobLevel, Mode, Spaces, rl
from rlinf_plugin_sketch.config import SketchConfig


class SketchPolicy(nn.Module):
    """Independent Gaussians whose means are linear in the state, clamped to the action's bounds.

    Args:
        config: its options.
        spaces: ``observation["state"]`` of shape [S] and a box of actions [A].
        chunk: C, the number of actions a call.
    """

    logprob_level = LogprobLevel.TOKEN  # log-probs are of single dimensions, [N, C, A]

    def __init__(self, config: SketchConfig, spaces: Spaces, chunk: int) -> None:
        super().__init__()
        (width,) = spaces.observation["state"].shape
        self.shape = (chunk, *spaces.action.shape)  # [C, A]
        self.mean = nn.Linear(width, self.shape[0] * self.shape[1])
        self.value = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full(self.shape, config.log_std_init))
        # The bounds come from the simulator, so they are not part of the saved weights.
        for name in ("low", "high"):
            bound = torch.as_tensor(getattr(spaces.action, name))
            self.register_buffer(name, bound, persistent=False)

    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows; all randomness comes from ``draws``."""
        value = self.value(obs["state"]).squeeze(-1)  # [N]
        if mode is Mode.VALUE:
            return Act(None, None, value, None)
        mean, std = self._gaussian(obs["state"])  # [N, C, A]
        sample = mean
        if mode is Mode.SAMPLE:
            sample = mean + std * draws.normal(*self.shape).to(mean.device)
        # The log-prob is that of the sample: the density of a clamped action has atoms.
        logp = rl.gaussian_logprobs(sample, mean, std)
        replay = Batch({"state": obs["state"], "sample": sample})
        return Act(sample.clamp(self.low, self.high), logp, value, replay)

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded samples under the weights of now, with gradients."""
        mean, std = self._gaussian(replay["state"])  # [B, C, A]
        logp = rl.gaussian_logprobs(replay["sample"], mean, std)
        return Eval(logp, rl.gaussian_entropy(std), self.value(replay["state"]).squeeze(-1))

    def observe(self, obs: Batch, valid: Tensor, reduce: Callable[[Tensor], Tensor]) -> None:
        """Keep nothing; a policy that normalises its observations updates its statistics here."""

    def lora_targets(self) -> tuple[str, ...]:
        """Return nothing: there is nothing that low rank could spare."""
        return ()

    def shards(self) -> tuple[str, ...]:
        """Return nothing: it is small."""
        return ()

    def _gaussian(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.mean(state).reshape(-1, *self.shape)
        return mean, self.log_std.exp().expand_as(mean)
