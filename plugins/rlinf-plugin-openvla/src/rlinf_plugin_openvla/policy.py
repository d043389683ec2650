"""The model ``openvla``: acts by decoding action tokens, and scores them in one pass.

What a policy must do is stated in ``rlinf_core.protocols.policy``. A model that decodes otherwise
overrides :meth:`OpenVLAPolicy.decode` and :meth:`OpenVLAPolicy.score`.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from rlinf_core.api import (
    Act,
    ActionBins,
    Batch,
    Bounds,
    CapabilityError,
    Draws,
    Eval,
    LogprobLevel,
    Mode,
    RLInputError,
    Spaces,
    rl,
    stored_tensors,
)
from rlinf_plugin_openvla import weights
from rlinf_plugin_openvla.config import VLAConfig
from rlinf_plugin_openvla.llama import KeyValues
from rlinf_plugin_openvla.network import OpenVLANetwork, with_patches
from rlinf_plugin_openvla.processing import GRIPPERS, Prompts, Views
from rlinf_plugin_openvla.published import Published, choose_cameras


class OpenVLAPolicy(OpenVLANetwork):
    """Writes C x A action tokens, one after the other, after an image and an instruction.

    Log-probs and entropies are those within the action bins, at the configured temperature. Actions
    are un-normalised by the checkpoint's statistics and clamped to the simulator's bounds.

    Args:
        config: the checkpoint and how it acts.
        spaces: ``observation["images"]`` by camera and a box of actions [A].
        chunk: C, the number of actions a call.

    Raises:
        CheckpointError: the checkpoint cannot be read or does not fit.
        RequestError: it was trained for other chunks, its statistics are not those of [A], or it
            sees other cameras.
        CapabilityError: the simulator takes no flat vector of actions.
    """

    default_chunk: ClassVar[int | None] = 1
    """Actions in a chunk of a checkpoint that does not say; None where it must be said."""

    def __init__(self, config: VLAConfig, spaces: Spaces, chunk: int) -> None:
        published = Published(config.checkpoint)
        published.require_chunk(config.trained_chunk, self.default_chunk, chunk)
        if len(spaces.action.shape) != 1:
            raise CapabilityError(
                f"the simulator takes actions of shape {spaces.action.shape}, but this model gives "
                "vectors [A]; choose another simulator"
            )
        statistics = published.actions(config.unnorm_key, spaces.action.shape[0])
        cameras = choose_cameras(config.cameras, spaces)
        loads = config.weights == "checkpoint"
        with weights.making(config.dtype, empty=loads):
            self.assemble(published, config, spaces)
        if loads:
            weights.give_memory(self)
        if config.value_head:
            self.add_value_head()
        if loads:
            self.load_published(published)

        self.config = config
        self.recompute = config.gradient_checkpointing
        self.logprob_level = LogprobLevel(config.logprob_level)
        self.shape = (chunk, statistics.width)  # of one row's tokens, [C, A]
        self.bins = ActionBins(published.architecture.bins, published.architecture.action_end)
        self.bounds = Bounds.of(statistics, config.range_epsilon)
        self.low, self.high = (torch.as_tensor(x) for x in (spaces.action.low, spaces.action.high))
        self.prompts = Prompts(published, config)
        self.views = Views(published, cameras, config.resize)

    @property
    def rescores(self) -> bool:
        """Whether what was sampled is scored once more, because decoding has other shapes."""
        return bool(self.config.rescore)

    def assemble(self, published: Published, config: VLAConfig, spaces: Spaces) -> None:
        """Make the modules."""
        OpenVLANetwork.__init__(self, published.architecture)

    def load_published(self, published: Published) -> None:
        """Read the checkpoint's weights."""
        weights.load(self, stored_tensors(published.folder), published.folder)

    # --- the contract ----------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Choose a chunk of actions for each of N rows.

        Args:
            obs: ``images`` by camera, uint8 [N, H, W, 3], and ``task``, N instructions.
            draws: a row of random numbers each, for mode SAMPLE.
            mode: SAMPLE draws tokens, GREEDY takes the likeliest, VALUE only asks the critic.

        Returns:
            actions [N, C, A], log-probs at the configured level, value [N] where there is a critic,
            and a replay of resized images, prompt and tokens.

        Raises:
            RLInputError: mode SAMPLE without draws, or a prompt that is too long.
        """
        seen = self.perceive(obs)
        if mode is Mode.VALUE:
            return Act(None, None, self._value(self.summary(seen)), None)
        noise = None
        if mode is Mode.SAMPLE:
            if draws is None:
                raise RLInputError("act(mode=SAMPLE) without draws; pass the rows' Draws")
            noise = draws.gumbel(math.prod(self.shape), self.bins.bins).to(self.device)
        tokens, logits, summary = self.decode(seen, noise)
        replay = seen.with_entries(tokens=tokens.unflatten(1, self.shape))
        if mode is Mode.SAMPLE and self.rescores:
            logits, summary = self.score(replay)
        logp, _ = self.bins.score(logits, tokens, self.config.temperature)  # [N, C * A]
        return Act(self.actions(tokens), self._level(logp), self._value(summary), replay)

    def evaluate(self, replay: Batch) -> Eval:
        """Score recorded tokens under the weights of now, with gradients.

        Args:
            replay: B rows, as :meth:`act` returned them.

        Returns:
            log-prob and entropy at the configured level, and value [B] where there is a critic.
        """
        logits, summary = self.score(replay)
        tokens = replay["tokens"].flatten(1)
        logp, entropy = self.bins.score(logits, tokens, self.config.temperature)
        return Eval(self._level(logp), self._level(entropy), self._value(summary))

    def observe(self, obs: Batch, valid: Tensor, reduce: rl.Reduce) -> None:
        """Keep nothing: statistics are the checkpoint's."""

    def lora_targets(self) -> tuple[str, ...]:
        """Return every linear layer but the language model's last one and the critic's."""
        kept = ("value_head.", "language_model.lm_head")
        return tuple(
            name
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and not name.startswith(kept)
        )

    def shards(self) -> tuple[str, ...]:
        """Return every layer of the language model and every block of the towers."""
        lists = ("language_model.model.layers", "blocks")
        return tuple(
            f"{name}.{i}"
            for name, module in self.named_modules()
            if isinstance(module, nn.ModuleList) and name.endswith(lists)
            for i in range(len(module))
        )

    # --- what it reads and gives -----------------------------------------------------------------

    def perceive(self, obs: Batch) -> Batch:
        """Return what the network reads of N rows: resized ``images``, ``ids`` and ``mask``."""
        ids, mask = self.prompts(obs["task"])
        images = self.views.resized(obs["images"])  # [N, K, S, S, 3]
        return Batch({"images": images, "ids": ids, "mask": mask}).to(self.device)

    def look(self, seen: Batch) -> Tensor:
        """Return what the language model reads of the images, [B, patches, D]."""
        return self.see(self.views.pixels(seen["images"]))

    def actions(self, tokens: Tensor) -> Tensor:
        """Return float32 actions [N, C, A] in the simulator's units of tokens [N, C * A]."""
        return self.finish(self.bins.decode(tokens).unflatten(1, self.shape))

    def finish(self, normal: Tensor) -> Tensor:
        """Return float32 actions [N, C, A] in the simulator's units of normalised ones."""
        actions = self.bounds.unnormalize(normal)
        actions[..., -1] = GRIPPERS[self.config.gripper](actions[..., -1])
        low, high = self.low.to(actions.device), self.high.to(actions.device)
        return actions.float().clamp(low, high)

    def _value(self, summary: Tensor) -> Tensor | None:
        values = self.values(summary)
        return None if values is None else values.squeeze(1)

    def _level(self, x: Tensor) -> Tensor:
        return rl.aggregate_logprob(x.unflatten(1, self.shape), self.logprob_level.value)

    # --- decoding and scoring --------------------------------------------------------------------

    def summary(self, seen: Batch) -> Tensor:
        """Return the hidden state [B, D] that the critic reads: that of the last prompt token."""
        return self.read(seen["ids"], seen["mask"], self.look(seen))[:, -1]

    def decode(self, seen: Batch, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Choose tokens one after the other, keeping keys and values.

        Args:
            seen: N rows, from :meth:`perceive`.
            noise: Gumbel noise [N, C * A, bins]; None takes the likeliest.

        Returns:
            tokens [N, C * A], the logits that each was chosen by [N, C * A, V], and what the critic
            reads [N, D].
        """
        ids, mask, images = seen["ids"], seen["mask"], self.look(seen)
        count = math.prod(self.shape)
        memory = KeyValues(images.shape[1] + ids.shape[1] + count)
        hidden = self.read(ids, mask, images, memory)[:, -1:]  # [N, 1, D]
        summary = hidden[:, 0]
        valid = with_patches(mask, images.shape[1])
        tokens: list[Tensor] = []
        logits: list[Tensor] = []
        for i in range(count):
            if tokens:
                valid = torch.cat([valid, valid.new_ones(len(valid), 1)], dim=1)
                hidden = self.step(tokens[-1], valid, memory)
            logits.append(self.logits(hidden))
            part = None if noise is None else noise[:, i : i + 1]
            tokens.append(self.bins.choose(logits[-1], self.config.temperature, part))
        return torch.cat(tokens, dim=1), torch.cat(logits, dim=1), summary

    def score(self, replay: Batch) -> tuple[Tensor, Tensor]:
        """Return logits [B, C * A, V] of recorded tokens in one pass, and what the critic reads.

        Args:
            replay: B rows; of their tokens, the last one has nothing to say.
        """
        before = replay["tokens"].flatten(1)[:, :-1]
        ids = torch.cat([replay["ids"], before], dim=1)
        mask = torch.cat([replay["mask"], torch.ones_like(before, dtype=torch.bool)], dim=1)
        hidden = self.read(ids, mask, self.look(replay))[:, -before.shape[1] - 1 :]
        return self.logits(hidden), hidden[:, 0]
