"""What a configured model weighs, and whether what it was given fits; without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Capability, CapabilityError, Facts, Level, Spaces, Unknown
from rlinf_plugin_pi0 import published
from rlinf_plugin_pi0.config import SLOTS, Pi0Config, Pi05Config
from rlinf_plugin_pi0.prompt import load_tokenizer
from rlinf_plugin_pi0.shapes import EXPERT, VLM, head_shapes, model_shapes


def facts(config: Pi0Config, upstream: Mapping[str, Any]) -> Facts:
    """Return sizes and capabilities of a configured model.

    Args:
        config: of the model.
        upstream: facts of the sections before this one: ``simulator`` and ``chunk``.

    Raises:
        RequestError: statistics, horizon, tokenizer, cameras or widths do not fit.
    """
    chunk = int(upstream.get("chunk", 1))
    published.check_sizes(config, chunk)
    load_tokenizer(config.tokenizer)
    tensors = {**model_shapes(config), **head_shapes(config)}
    sizes = {name: math.prod(shape) for name, shape in tensors.items()}
    buffers = sum(n for name, n in sizes.items() if "logvar_m" in name and "mlp" not in name)
    half = config.precision == "bfloat16"
    frozen = 0 if config.train_vlm else sum(n for k, n in sizes.items() if k.startswith(VLM))
    total = sum(sizes.values())
    spaces = getattr(upstream.get("simulator"), "spaces", Unknown("there is no simulator"))
    act_bytes: int | Unknown
    if isinstance(spaces, Unknown):
        act_bytes = Unknown(f"the simulator's spaces are not known: {spaces.reason}")
    else:
        act_bytes = Fitted(config, spaces).act_bytes(chunk)
    return Facts(
        parameters=total - buffers,
        bytes=sum((2 if half and in_half(k) else 4) * n for k, n in sizes.items()),
        trainable=total - buffers - frozen,
        act_bytes=act_bytes,
        capabilities={
            Capability.VALUE: _level(config.value != "none"),
            Capability.LOGPROB: _level(config.sampler != "ode"),
            Capability.ENTROPY: _level(config.sampler != "ode"),
        },
        conventions={"image_rotation": "0"},
    )


def in_half(name: str) -> bool:
    """Return whether a tensor is in bfloat16 where that precision is chosen (openpi's rule)."""
    inside = name.startswith((VLM, EXPERT))
    return inside and not any(part in name for part in KEPT)


KEPT = (
    "patch_embedding.",
    "position_embedding.",
    "input_layernorm.",
    "post_attention_layernorm.",
    "model.norm.",
)
"""Parts of names that stay in float32."""


class Fitted:
    """What of a simulator's spaces the model uses, checked.

    Attributes:
        cameras: names of the simulator's cameras, one per slot; empty where there is none.
        state: width of the state.
        action: width of an action.
        state_statistics, action_statistics: or None where none are configured.

    Args:
        config: of the model.
        spaces: the simulator's.

    Raises:
        CapabilityError: an observation or action that the model needs is not there or too wide.
        RequestError: statistics do not fit.
    """

    def __init__(self, config: Pi0Config, spaces: Spaces) -> None:
        shown = spaces.observation.spaces
        for name, what in (
            ("images", "camera images"),
            ("task", "an instruction"),
            ("state", "a state"),
        ):
            if name not in shown:
                raise CapabilityError(
                    f"the simulator shows {sorted(shown)}, but pi0 and pi0.5 read {what} "
                    f"({name!r}); choose another simulator, or its option for it"
                )
        self.config = config
        self.cameras = _cameras(config.cameras, sorted(shown["images"].spaces))
        self.state = _width("state", shown["state"].shape, config)
        self.action = _width("action", spaces.action.shape, config)
        if len(config.delta_actions) > min(self.state, self.action):
            raise CapabilityError(
                f"model.delta_actions has {len(config.delta_actions)} entries, but the simulator's "
                f"state has {self.state} dimensions and its action {self.action}; shorten it"
            )
        self.state_statistics = published.statistics(config, "state", self.state)
        self.action_statistics = published.statistics(config, "actions", self.action)

    def act_bytes(self, chunk: int) -> int:
        """Return the bytes of a row of log-prob, value and replay."""
        c = self.config
        images = sum(map(bool, self.cameras)) * 3 * c.vision.image_size**2
        chains = 4 * (c.denoise_steps + 1) * c.horizon * c.action_dim
        steps = c.denoise_steps if c.joint_logprob else 1
        state = 0 if isinstance(c, Pi05Config) else 4 * c.action_dim
        value = 0 if c.value == "none" else 4
        other = 4 * chunk * self.action + 9 * c.max_tokens + 8 * steps + 4
        return images + chains + state + value + other


def _cameras(given: tuple[str, ...], there: list[str]) -> tuple[str, ...]:
    """Return the camera of each slot."""
    if not given:
        if len(there) != 1:
            raise CapabilityError(
                f"the simulator has the cameras {there}; set model.cameras to which of them stand "
                f"for {', '.join(SLOTS)}, in this order, with '' for one that is not there"
            )
        given = tuple(there)
    if strange := sorted(set(given) - {*there, ""}):
        raise CapabilityError(f"model.cameras names {strange}, but the simulator has {there}")
    if not any(given):
        raise CapabilityError(f"model.cameras names no camera; the simulator has {there}")
    return (*given, *[""] * (len(SLOTS) - len(given)))


def _width(name: str, shape: tuple[int, ...], config: Pi0Config) -> int:
    if len(shape) != 1 or shape[0] > config.action_dim:
        raise CapabilityError(
            f"the simulator's {name} has shape {list(shape)}, wanted one dimension of at most "
            f"model.action_dim = {config.action_dim}"
        )
    return shape[0]


def _level(there: bool) -> Level:
    return Level.FULL if there else Level.UNSUPPORTED
