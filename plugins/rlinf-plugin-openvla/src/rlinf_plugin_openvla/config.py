"""Options of the model ``openvla``. A new option goes here, with its help below it; no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlinf_core.api import Config

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]


class VLAConfig(Config):
    """A published checkpoint, and how it acts and is trained: what models on OpenVLA share."""

    checkpoint: str = Field(min_length=1)
    """Folder with ``config.json``, ``preprocessor_config.json``, ``tokenizer.json`` and weights."""

    weights: Literal["checkpoint", "random"] = "checkpoint"
    """Where initial weights come from: the folder, or the run's seed."""

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Number format of the weights; published ones are bfloat16."""

    unnorm_key: str | None = None
    """Dataset whose statistics un-normalise actions, or the beginning of its name. Needed where the
    checkpoint has several."""

    range_epsilon: float = Field(default=0.0, ge=0.0, le=1e-3)
    """Added to the range from q01 to q99: 0 as OpenVLA has it, 1e-8 as RLinf trains it."""

    trained_chunk: int | None = Field(default=None, ge=1, le=10_000)
    """Actions in a chunk that the checkpoint was trained for, where ``num_action_chunks`` of its
    config.json does not say."""

    cameras: tuple[str, ...] = ()
    """Cameras that the model sees, in its order; empty means the only one there is."""

    resize: Literal["pillow", "torch"] = "pillow"
    """Which bicubic resize brings images to the model's size: Pillow's, as OpenVLA is published, or
    torch's on tensors, as RLinf trains it. They differ, so take the one of the checkpoint."""

    gripper: Literal["as-is", "libero", "widowx"] = "as-is"
    """What becomes of the last dimension, which OpenVLA gives from 0 (closed) to 1 (open): LIBERO
    takes 1 as closed and -1 as open, ManiSkill's WidowX -1 and 1; both get nothing between."""

    prompt: str = "In: What action should the robot take to {task}?\nOut:"
    """Text around the instruction, which is written in lower case in place of ``{task}``."""

    prompt_suffix_ids: tuple[TokenId, ...] = (29871,)
    """Token ids that stand behind the text: what Llama's tokenizer makes of an empty string."""

    prompt_length: int = Field(default=64, ge=2, le=4096)
    """Tokens of a prompt, padding included. A longer one is refused, never cut."""

    temperature: float = Field(default=1.0, gt=0.0, le=100.0)
    """Divides the logits of the action bins when sampling and when scoring. Greedy acting, as in
    evaluation, takes the likeliest bin whatever this says."""

    logprob_level: Literal["token", "action", "chunk"] = "token"
    """How finely log-probs are stated. An algorithm may sum finer ones up, not split others."""

    value_head: bool = True
    """Whether there is a critic, which PPO needs and GRPO does not. It starts at random."""

    gradient_checkpointing: bool = False
    """Compute the language model's activations again in the backward pass, and keep none."""


class OpenVLAConfig(VLAConfig):
    """OpenVLA, which writes one token after the other; its chunks have one action by default."""

    rescore: bool = True
    """Score what was sampled once more in one pass, as training does, so that the first update's
    ratio is exactly 1. Without, log-probs are those of decoding token by token: off by less than
    1e-5, for half the work of acting."""
