"""A world small enough to work out by hand, and a policy for it: a point that should reach 0.

Its arithmetic is exact in float32, so results do not depend on batching, and it restores its state.
The state is (position, steps taken); the first action dimension moves the point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf_core.config.schema import Config
from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import Draws
from rlinf_core.protocols.policy import Act, Eval, LogprobLevel, Mode
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, Spaces, StateId, Step
from rlinf_core.specs import Facts


class ToyConfig(Config):
    """Options of the toy simulator."""

    horizon: int = 6
    """Steps before an episode is truncated."""
    terminate: bool = False
    """End an episode by termination when the point comes within 1/8 of 0."""
    states: int = 10
    """Number of initial states of each split."""


class ToySimulator:
    """See the module's docstring.

    Args:
        config: its options.
        slots: the environments to hold.
    """

    autoreset = Autoreset.DISABLED

    def __init__(self, config: ToyConfig, slots: EnvSlots) -> None:
        self.config, self.slots = config, slots
        n = len(slots.ids)
        self.spaces = Spaces(
            spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (2,), np.float32)}),
            spaces.Box(-1.0, 1.0, (2,), np.float32),
        )
        self.position = torch.zeros(n)  # [N]
        self.count = torch.zeros(n, dtype=torch.int64)  # [N]
        self.ended = torch.ones(n, dtype=torch.bool)  # [N] nothing runs before the first reset
        self.resets: list[StateId] = []
        self.closed = False

    def initial_states(self, split: str) -> Sequence[StateId]:
        """Return ``config.states`` states."""
        return [StateId(split, index) for index in range(self.config.states)]

    def reset(self, mask: Tensor, states: Sequence[StateId]) -> Batch:
        """Put the masked points at a place that the state alone decides."""
        for row, state in zip(mask.nonzero().squeeze(-1).tolist(), states, strict=True):
            side = 1.0 if state.split == "train" else -1.0
            self.position[row] = side * (state.index + 1) / 8
            self.count[row] = 0
            self.ended[row] = False
            self.resets.append(state)
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Move by a quarter of the first action dimension; the reward is minus the distance."""
        n, chunk, _ = actions.shape
        reward = torch.zeros(n, chunk)  # [N, C]
        flags = {
            name: torch.zeros(n, chunk, dtype=torch.bool)  # [N, C]
            for name in ("terminated", "truncated", "success", "valid")
        }
        for c in range(chunk):
            live = ~self.ended
            moved = self.position + actions[:, c, 0] / 4
            self.position = torch.where(live, moved, self.position)
            self.count += live
            near = self.position.abs() <= 1 / 8
            reward[:, c] = torch.where(live, -self.position.abs(), reward[:, c])
            flags["valid"][:, c] = live
            flags["success"][:, c] = live & near
            flags["terminated"][:, c] = live & near & self.config.terminate
            flags["truncated"][:, c] = live & (self.count >= self.config.horizon)
            self.ended = self.ended | flags["terminated"][:, c] | flags["truncated"][:, c]
        return Step(obs=self._observe(), final_obs=None, reward=reward, **flags)

    def render(self) -> np.ndarray | None:
        """Return small pictures with a white column where the point is."""
        pictures = np.zeros((len(self.slots.ids), 16, 16, 3), dtype=np.uint8)
        for row, position in enumerate(self.position.tolist()):
            pictures[row, :, min(15, max(0, int(8 + 4 * position)))] = 255
        return pictures

    def state_dict(self) -> Mapping[str, Any]:
        """Return everything."""
        return {name: getattr(self, name).clone() for name in ("position", "count", "ended")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take everything back."""
        for name, tensor in state.items():
            setattr(self, name, tensor.clone())

    def offload(self) -> None:
        """Nothing to free."""

    def onload(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _observe(self) -> Batch:
        return Batch({"state": torch.stack([self.position, self.count.float()], dim=1)})


class ToyCameraSimulator(ToySimulator):
    """The same world, seen: cameras ``front`` and ``wrist`` (mirrored), and an instruction each."""

    def __init__(self, config: ToyConfig, slots: EnvSlots) -> None:
        super().__init__(config, slots)
        self.spaces = _seen_spaces(self.spaces)

    def _observe(self) -> Batch:
        front = torch.from_numpy(self.render())  # [N, 16, 16, 3]
        tasks = [f"push the point\nto_the {'left' if p > 0 else 'right'}" for p in self.position]
        images = {"front": front, "wrist": front.flip(2)}
        return super()._observe().with_entries(images=images, task=tasks)


def camera_facts(config: ToyConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the spaces of :class:`ToyCameraSimulator`."""
    plain = ToySimulator(config, EnvSlots(ids=(0,), seed=0)).spaces
    return Facts(parameters=0, bytes=0, spaces=_seen_spaces(plain))


def _seen_spaces(plain: Spaces) -> Spaces:
    image = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    images = spaces.Dict({"front": image, "wrist": image})
    shown = {**plain.observation.spaces, "images": images, "task": spaces.Text(64)}
    return Spaces(spaces.Dict(shown), plain.action)


class ToyPolicy(nn.Module):
    """Pushes the point towards 0; sampling adds noise. Its value is minus the distance.

    Args:
        config: it has no options.
        spaces: those of :class:`ToySimulator`.
        chunk: actions in a chunk.
    """

    logprob_level = LogprobLevel.CHUNK

    def __init__(self, config: Any, spaces: Spaces, chunk: int) -> None:
        super().__init__()
        self._shape = (chunk, *spaces.action.shape)
        self.gain = nn.Parameter(torch.ones(()))

    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Act on N rows; the log-probability is that of the noise's first entry."""
        position = obs["state"][:, 0]  # [N]
        value = -position.abs()
        if mode is Mode.VALUE:
            return Act(None, None, value, None)
        actions = torch.zeros(len(obs), *self._shape)
        actions[:, :, 0] = (-self.gain * torch.sign(position))[:, None]
        noise = torch.zeros(len(obs)) if draws is None else draws.normal(1)[:, 0]
        actions[:, :, 1] = noise.clamp(-1, 1)[:, None]
        replay = Batch({"position": position, "noise": noise})
        return Act(actions, -0.5 * noise**2, value, replay)

    def evaluate(self, replay: Batch) -> Eval:
        """Score the noise, whatever the weights."""
        logp = -0.5 * replay["noise"] ** 2 + 0 * self.gain
        return Eval(logp, torch.zeros_like(logp), -self.gain * replay["position"].abs())

    def observe(self, obs: Batch, valid: Tensor, reduce: Callable[[Tensor], Tensor]) -> None:
        """Keep nothing."""

    def lora_targets(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def shards(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()
