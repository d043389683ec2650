"""pi0 and pi0.5 as networks: the prefix once, then a velocity for as many noisy chunks as wanted.

Names of modules are those of openpi's published tensors. What acts and is trained is in
``policy.py``; the ``lm_head`` of the expert and that of the language model, which actions do not
need, are known to ``checkpoint.py`` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlinf_plugin_pi0 import flow
from rlinf_plugin_pi0.config import Pi0Config
from rlinf_plugin_pi0.gemma import Gemma, KeyValue
from rlinf_plugin_pi0.vision import VisionTower

PERIODS = (4e-3, 4.0)
"""Shortest and longest period of the time's sines, in units of the flow's time."""


@dataclass(frozen=True)
class Prefix:
    """What an observation comes to; computed once and read by every denoise step.

    Attributes:
        mask: bool [B, P], which tokens are there.
        cache: keys and values of each layer.
        output: float32 [B, P, width] behind the language model's last norm.
    """

    mask: Tensor
    cache: list[KeyValue]
    output: Tensor


class PiModel(nn.Module):
    """SigLIP, Gemma and the action expert.

    Args:
        config: sizes.
        adaptive: whether it is pi0.5: the flow's time goes into the expert's norms, and there is no
            state token.
    """

    def __init__(self, config: Pi0Config, adaptive: bool) -> None:
        super().__init__()
        self.adaptive, self.horizon = adaptive, config.horizon
        vlm, expert = config.vlm, config.expert
        self.paligemma_with_expert = _tree(
            {
                "paligemma": {
                    "model": {
                        "vision_tower": {"vision_model": VisionTower(config.vision)},
                        "multi_modal_projector": {
                            "linear": nn.Linear(config.vision.width, vlm.width)
                        },
                        "language_model": Gemma(vlm, vocabulary=config.vocabulary),
                    }
                },
                "gemma_expert": {"model": Gemma(expert, condition=expert.width * adaptive)},
            }
        )
        self.action_in_proj = nn.Linear(config.action_dim, expert.width)
        self.action_out_proj = nn.Linear(expert.width, config.action_dim)
        if adaptive:
            self.time_mlp_in = nn.Linear(expert.width, expert.width)
            self.time_mlp_out = nn.Linear(expert.width, expert.width)
        else:
            self.state_proj = nn.Linear(config.action_dim, expert.width)
            self.action_time_mlp_in = nn.Linear(2 * expert.width, expert.width)
            self.action_time_mlp_out = nn.Linear(expert.width, expert.width)

    @property
    def vlm(self) -> nn.ModuleDict:
        """Vision tower, projector and language model."""
        return self.paligemma_with_expert["paligemma"]["model"]

    @property
    def expert(self) -> Gemma:
        """The action expert."""
        return self.paligemma_with_expert["gemma_expert"]["model"]

    # --- the prefix ------------------------------------------------------------------------------

    def embed_prefix(
        self, images: Tensor, image_mask: Tensor, tokens: Tensor, token_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings [B, P, width] and their mask, bool [B, P]: cameras, then the prompt.

        Args:
            images: float32 [B, cameras, 3, S, S] in [-1, 1].
            image_mask: bool [B, cameras], false for a camera that is not there.
            tokens: int64 [B, L], padded on the right.
            token_mask: bool [B, L].
        """
        seen = self.vlm["vision_tower"]["vision_model"](images.flatten(0, 1))
        seen = self.vlm["multi_modal_projector"]["linear"](seen)  # [B * cameras, patches, width]
        patches, width = seen.shape[1:]
        seen = seen.reshape(len(images), -1, width)
        text = self.vlm["language_model"].embed_tokens(tokens) * math.sqrt(width)
        mask = torch.cat([image_mask.repeat_interleave(patches, dim=1), token_mask], dim=1)
        return torch.cat([seen, text.to(seen.dtype)], dim=1), mask

    def prefix(
        self, images: Tensor, image_mask: Tensor, tokens: Tensor, token_mask: Tensor
    ) -> Prefix:
        """Run the language model over what :meth:`embed_prefix` makes of the same arguments."""
        x, mask = self.embed_prefix(images, image_mask, tokens, token_mask)
        positions = mask.cumsum(dim=1) - 1  # padding takes no position
        visible = mask.unsqueeze(1) & mask.unsqueeze(2)  # [B, P, P], in both directions
        output, cache = self.vlm["language_model"](x, positions, visible)
        return Prefix(mask, cache, output)

    # --- the suffix ------------------------------------------------------------------------------

    def embed_suffix(
        self, state: Tensor | None, x: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return embeddings [B, T, width] and the condition [B, width] of adaptive norms.

        Args:
            state: float32 [B, D], only for pi0, where it is the first token.
            x: noisy actions [B, H, D].
            time: the flow's time [B].
        """
        actions = self.action_in_proj(x)  # [B, H, width]
        sines = time_embedding(time, actions.shape[-1]).to(actions.dtype)  # [B, width]
        if self.adaptive:
            condition = F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(sines))))
            return actions, condition
        both = torch.cat([actions, sines.unsqueeze(1).expand_as(actions)], dim=-1)
        actions = self.action_time_mlp_out(F.silu(self.action_time_mlp_in(both)))
        assert state is not None
        return torch.cat([self.state_proj(state).unsqueeze(1), actions], dim=1), None

    def denoise(self, prefix: Prefix, state: Tensor | None, x: Tensor, time: Tensor) -> Tensor:
        """Return the expert's output for the noisy actions, float32 [B, H, width].

        Arguments are those of :meth:`embed_suffix`; ``prefix`` is only read.
        """
        embedded, condition = self.embed_suffix(state, x, time)
        rows, length, _ = embedded.shape
        # The state is a block of its own: actions see it, and it sees no action.
        block = torch.arange(length, device=x.device) >= length - self.horizon  # [T]
        own = block.unsqueeze(1) >= block.unsqueeze(0)  # [T, T]
        visible = torch.cat(
            [
                prefix.mask.unsqueeze(1).expand(-1, length, -1),
                own.unsqueeze(0).expand(rows, -1, -1),
            ],
            dim=2,
        )  # [B, T, P + T]
        first = prefix.mask.sum(dim=1, keepdim=True)  # [B, 1]
        positions = first + torch.arange(length, device=x.device)
        out, _ = self.expert(embedded, positions, visible, prefix.cache, condition)
        return out[:, -self.horizon :]

    def velocity(self, prefix: Prefix, state: Tensor | None, x: Tensor, time: Tensor) -> Tensor:
        """Return the velocity [B, H, D] at ``x`` and ``time``."""
        return self.action_out_proj(self.denoise(prefix, state, x, time))

    def loss(
        self, prefix: Prefix, state: Tensor | None, actions: Tensor, noise: Tensor, time: Tensor
    ) -> Tensor:
        """Return the flow-matching loss of demonstrated actions, [B, H, D], not reduced.

        Args:
            prefix: of the observations.
            state: [B, D], or None for pi0.5.
            actions: normalised and padded [B, H, D].
            noise: standard normal [B, H, D].
            time: [B], such as :func:`rlinf_plugin_pi0.flow.training_time` gives.
        """
        x = flow.interpolate(noise, actions, time)
        return (noise - actions - self.velocity(prefix, state, x, time)).square()


def time_embedding(time: Tensor, width: int) -> Tensor:
    """Return float64 [B, width]: sines, then cosines, whose periods grow geometrically."""
    shortest, longest = PERIODS
    place = torch.linspace(0, 1, width // 2, dtype=torch.float64, device=time.device)
    period = shortest * (longest / shortest) ** place  # [width / 2]
    angle = 2 * math.pi * time.double().unsqueeze(-1) / period
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def _tree(branch: nn.Module | dict[str, Any]) -> nn.Module:
    """Return nested dictionaries as modules of the same names."""
    if isinstance(branch, nn.Module):
        return branch
    return nn.ModuleDict({name: _tree(part) for name, part in branch.items()})
