"""The model ``openvla-oft``: a chunk of actions in one pass, sampled and scored alike."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from rlinf_plugin_openvla import weights
from rlinf_plugin_openvla.policy import OpenVLAPolicy
from rlinf_plugin_openvla.published import Published
from torch import Tensor

from rlinf_core.api import Act, Batch, Bounds, CapabilityError, Draws, Eval, Mode, Spaces
from rlinf_plugin_openvla_oft import parts
from rlinf_plugin_openvla_oft.config import OFTConfig
from rlinf_plugin_openvla_oft.facts import choose_proprio
from rlinf_plugin_openvla_oft.network import OFTNetwork, Predicted


class OFTPolicy(OpenVLAPolicy, OFTNetwork):
    """Gives C x A action tokens at once, or continuous actions where it has the L1 head.

    Rollout and training make the same pass, so the first update's ratio is exactly 1 where batches
    have the same shape.

    Args:
        config: the checkpoint and how it acts.
        spaces: ``observation["images"]`` by camera, ``observation["state"]`` [S] where the
            checkpoint reads it, and a box of actions [A].
        chunk: C, the number of actions a call.

    Raises:
        CheckpointError: the checkpoint cannot be read or does not fit.
        RequestError: it was trained for other chunks, its statistics are not those of [A] or [S],
            or it sees other cameras.
    """

    default_chunk: ClassVar[int | None] = None
    rescores = False

    def __init__(self, config: OFTConfig, spaces: Spaces, chunk: int) -> None:
        super().__init__(config, spaces, chunk)
        proprio = self.proprio
        self.proprio_bounds = Bounds.of(proprio, config.range_epsilon) if proprio else None

    def assemble(self, published: Published, config: OFTConfig, spaces: Spaces) -> None:
        """Make the modules."""
        proprio = choose_proprio(config, published, spaces)
        OFTNetwork.__init__(
            self,
            published.architecture,
            config.stop_token,
            config.film,
            state=proprio.width if proprio else 0,
            action=spaces.action.shape[0] if config.head == "l1" else 0,
        )
        self.proprio = proprio

    def load_published(self, published: Published) -> None:
        """Read the checkpoint's weights and the files beside them."""
        weights.load(self, parts.stored(self, published.folder), published.folder)

    # --- the contract ----------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows; see :class:`OpenVLAPolicy`.

        Raises:
            CapabilityError: mode SAMPLE with the L1 head, which has no distribution.
        """
        if self.action_head is None or mode is Mode.VALUE:
            return super().act(obs, draws, mode)
        if mode is Mode.SAMPLE:
            raise CapabilityError(_ONLY_GREEDY)
        found = self.predicted(self.perceive(obs))
        actions = self.finish(self.action_head(found.hidden).double())
        return Act(actions, None, self._value(found.summary), None)

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded tokens; see :class:`OpenVLAPolicy`.

        Raises:
            CapabilityError: the L1 head has no distribution.
        """
        if self.action_head is not None:
            raise CapabilityError(_ONLY_GREEDY)
        return super().evaluate(replay)

    def perceive(self, obs: Batch) -> Batch:
        """Return what the network reads of N rows, with the normalised ``state`` if it does."""
        seen = super().perceive(obs)
        if self.proprio_bounds is None:
            return seen
        state = self.proprio_bounds.normalize(obs["state"], clip=True).float()
        return seen.with_entries(state=state.to(self.device))

    # --- decoding and scoring --------------------------------------------------------------------

    def predicted(self, seen: Batch) -> Predicted:
        """Return hidden states for every dimension of every action of B rows."""
        pixels = self.views.pixels(seen["images"])
        state = seen["state"] if self.proprio_bounds is not None else None
        return self.predict(seen["ids"], seen["mask"], pixels, math.prod(self.shape), state)

    def summary(self, seen: Batch) -> Tensor:
        """Return the hidden state [B, D] that the critic reads."""
        return self.predicted(seen).summary

    def decode(self, seen: Batch, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Choose all tokens at once; see :meth:`OpenVLAPolicy.decode`."""
        logits, summary = self.score(seen)
        return self.bins.choose(logits, self.config.temperature, noise), logits, summary

    def score(self, replay: Batch) -> tuple[Tensor, Tensor]:
        """Return logits [B, C * A, V], which depend on no token, and what the critic reads."""
        found = self.predicted(replay)
        return self.logits(found.hidden), found.summary


_ONLY_GREEDY = (
    "the L1 head gives actions without a distribution, so it can be evaluated but not sampled from "
    "or trained on; set model.head=tokens"
)
