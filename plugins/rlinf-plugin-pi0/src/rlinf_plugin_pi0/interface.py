"""What stands between a simulator and the networks: images, prompt, state, and actions back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlinf_core.api import (
    Batch,
    Bounds,
    Spaces,
    Statistics,
    ZScore,
    pad_last,
    resize_pillow_padded,
)
from rlinf_plugin_pi0 import prompt
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.facts import Fitted

EPSILON = 1e-6
"""Added to deviations and ranges, as openpi does."""


class Interface:
    """Reads observations and gives actions in the simulator's units.

    Attributes:
        cameras: the simulator's cameras that the networks get, in their order; empty for one that
            is not there.
        state_scale, action_scale: normalisation, or None where there are no statistics.

    Args:
        config: of the model.
        fitted: what of the simulator's spaces is used.
        spaces: for the actions' bounds.

    Raises:
        RequestError: the tokenizer cannot be read.
    """

    def __init__(self, config: Pi0Config, fitted: Fitted, spaces: Spaces) -> None:
        self.config, self.fitted = config, fitted
        # Nothing sees a camera that is not there, so it need not be computed; but the value of
        # published checkpoints is read from padding, too, which looks at all three.
        everything = config.value == "vlm" and config.value_token != "first"
        self.cameras = tuple(c for c in fitted.cameras if c or everything)
        self.tokenizer = prompt.load_tokenizer(config.tokenizer)
        self.state_scale = _scale(fitted.state_statistics)
        self.action_scale = _scale(fitted.action_statistics)
        self.low, self.high = (
            torch.as_tensor(bound).float() for bound in (spaces.action.low, spaces.action.high)
        )  # [A] each

    @property
    def there(self) -> Tensor:
        """Which cameras are there, bool [cameras]."""
        return torch.tensor([bool(camera) for camera in self.cameras])

    def read(self, obs: Batch) -> Batch:
        """Return an observation in the form that a replay keeps.

        Returns:
            ``images`` {camera: uint8 [N, S, S, 3]}, ``tokens`` int64 [N, L], ``token_mask`` bool
            [N, L] and, for pi0, ``state`` [N, D], normalised and padded.
        """
        size = (self.config.vision.image_size,) * 2
        seen = {c: resize_pillow_padded(obs["images"][c], size) for c in self.cameras if c}
        state = obs["state"].double()
        if self.state_scale is not None:
            state = self.state_scale.normalize(state)
        if isinstance(self.config, Pi05Config) and self.config.state_in_prompt:
            parts = list(map(prompt.state_parts, obs["task"], state.cpu().numpy()))
        else:
            parts = list(map(prompt.plain_parts, obs["task"]))
        tokens, mask = prompt.tokenize(self.tokenizer, parts, self.config.max_tokens)
        entries: dict[str, Any] = {
            "images": seen,
            "tokens": torch.from_numpy(tokens).to(state.device),
            "token_mask": torch.from_numpy(mask).to(state.device),
        }
        if not isinstance(self.config, Pi05Config):
            entries["state"] = pad_last(state, self.config.action_dim).float()
        return Batch(entries)

    def pixels(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return images [N, cameras, 3, S, S] in [-1, 1], and which are there, [N, cameras]."""
        rows, device = len(inputs["tokens"]), inputs["tokens"].device
        size = self.config.vision.image_size
        absent = torch.zeros(rows, size, size, 3, dtype=torch.uint8, device=device)
        images = torch.stack([inputs["images"][c] if c else absent for c in self.cameras], dim=1)
        pixels = images.movedim(-1, 2).float() / 255 * 2 - 1
        return pixels, self.there.to(device).expand(rows, -1)

    def actions(self, x: Tensor, state: Tensor) -> Tensor:
        """Return actions float32 [N, C, A], within the simulator's bounds.

        Args:
            x: what was denoised, [N, C, D].
            state: the simulator's, [N, S], for actions that are relative to it.
        """
        width = self.fitted.action
        actions = x.double()
        if self.action_scale is not None:
            actions = self.action_scale.unnormalize(actions)
        actions = actions[..., :width]
        if self.config.delta_actions:
            relative = torch.tensor(self.config.delta_actions, device=x.device)
            start = torch.where(relative, state[:, : len(relative)].double(), 0.0)
            actions = actions + pad_last(start, width).unsqueeze(1)
        return actions.float().clamp(self.low.to(x.device), self.high.to(x.device))


def _scale(statistics: Statistics | None) -> Bounds | ZScore | None:
    """Return the normalisation that the statistics are of."""
    if statistics is None:
        return None
    if "q01" in statistics.values:
        return Bounds.of(statistics, EPSILON)
    return ZScore(statistics.values["mean"], statistics.values["std"], EPSILON)
