"""Options of the model ``openvla-oft``. A new one goes here, with its help below it; no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from rlinf_plugin_openvla.config import VLAConfig


class OFTConfig(VLAConfig):
    """OpenVLA-OFT, which gives a chunk of actions at once."""

    stop_token: bool
    """Whether the stop token stands behind the actions: true as OFT trains, false as RLinf does.
    Nothing in a checkpoint says which, and the wrong one changes every number."""

    head: Literal["tokens", "l1"] = "tokens"
    """How actions come about: from tokens, which have log-probs, or from the continuous head of the
    checkpoint, which can be evaluated only."""

    proprio: bool = False
    """Whether the checkpoint reads the robot's state, as one token behind the images."""

    film: bool = False
    """Whether the instruction changes what the vision towers see (FiLM)."""

    range_epsilon: float = Field(default=1e-8, ge=0.0, le=1e-3)
    """Added to the range from q01 to q99; 1e-8 in OFT and in RLinf."""
