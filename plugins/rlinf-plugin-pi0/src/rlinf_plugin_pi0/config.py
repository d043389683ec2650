"""Options of the models ``pi0`` and ``pi05``. A new option goes here, with its help; no torch.

The defaults are the published models' sizes, and the settings of pi-RL (arXiv 2510.25889).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlinf_core.api import Config

Width = Annotated[int, Field(ge=1, le=1_000_000)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]

SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
"""The three cameras that the published models know, in their order."""


class VisionSizes(Config):
    """Sizes of the SigLIP tower; the defaults are So400m at 224 pixels."""

    image_size: Width = 224
    """Height and width of the images that it reads, in pixels."""
    patch_size: Width = 14
    """Height and width of a patch, in pixels; it must divide ``image_size``."""
    width: Width = 1152
    """Width of a patch's features."""
    depth: Width = 27
    """Number of layers."""
    heads: Width = 16
    """Attention heads; they must divide ``width``."""
    mlp: Width = 4304
    """Width inside the feed-forward part."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, whole, part in (
            ("image_size", self.image_size, self.patch_size),
            ("width", self.width, self.heads),
        ):
            if whole % part:
                raise ValueError(f"{name}={whole} is not a multiple of {part}")
        return self

    @property
    def patches(self) -> int:
        """Tokens of one image."""
        return (self.image_size // self.patch_size) ** 2


class GemmaSizes(Config):
    """Sizes of one Gemma; the defaults are those of Gemma 2B."""

    width: Width = 2048
    """Width of a token's features."""
    depth: Width = 18
    """Number of layers."""
    mlp: Width = 16384
    """Width inside the feed-forward part."""
    heads: Width = 8
    """Attention heads; ``kv_heads`` must divide them."""
    kv_heads: Width = 1
    """Heads of keys and values."""
    head_dim: Width = 256
    """Width of one head; even, because positions turn pairs of numbers."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} is odd; wanted an even number")
        return self


class ExpertSizes(GemmaSizes):
    """Sizes of the action expert."""

    width: Width = 1024
    """Width of a token's features; even, because the flow's time is told in sines and cosines."""
    mlp: Width = 4096
    """Width inside the feed-forward part."""


class Annealing(Config):
    """A noise level that falls, or rises, in a straight line and then stays."""

    start: float = Field(default=0.7, ge=0.0, le=10.0)
    """Level in the first iteration."""
    end: float = Field(default=0.3, ge=0.0, le=10.0)
    """Level from iteration ``iterations`` on."""
    iterations: int = Field(default=400, ge=1, le=1_000_000_000)
    """Over how many iterations it changes."""


class Pi0Config(Config):
    """pi0: a vision-language model and an action expert that turn noise into a chunk of actions."""

    checkpoint: Path | None = None
    """Folder of ``model.safetensors``, as openpi or LeRobot publish it; none is random weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the vision-language model and the expert; their norms, the patch and the position
    embedding and everything beside them stay in float32, as in openpi."""
    train_vlm: bool = False
    """Whether the vision-language model is trained, too, and not the expert and the heads alone."""
    gradient_checkpointing: bool = False
    """Compute both Gemmas' activations again in the backward pass, and keep none."""

    tokenizer: Path = "bytes"
    """PaliGemma's ``tokenizer.json`` or ``tokenizer.model``, or a folder with one; ``bytes`` is one
    token per byte, for random weights."""
    max_tokens: int = Field(default=48, ge=1, le=100_000)
    """Length to which prompts are padded, or cut with a warning."""
    cameras: tuple[str, ...] = Field(default=(), max_length=len(SLOTS))
    """Names of the simulator's cameras for base, left wrist and right wrist, in this order; an
    empty name is a camera that is not there. May be left out where the simulator has only one."""

    statistics: Path | None = None
    """``norm_stats.json`` of the data that the checkpoint was trained on, or a folder in which one
    lies, or several below the names of their assets; none, which only random weights may have,
    leaves state and action as they are."""
    unnorm_key: str = ""
    """Which asset's statistics; may be left out where there is only one."""
    normalization: Literal["z-score", "quantile"] = "z-score"
    """How state and action were normalised in training."""
    delta_actions: tuple[bool, ...] = Field(default=(), max_length=10_000)
    """For each action dimension, whether the model says it relative to the state; empty means
    none."""

    vocabulary: int = Field(default=257_152, ge=1, le=100_000_000)
    """Number of tokens."""
    vision: VisionSizes = VisionSizes()
    """Sizes of the SigLIP tower."""
    vlm: GemmaSizes = GemmaSizes()
    """Sizes of the language model."""
    expert: ExpertSizes = ExpertSizes()
    """Sizes of the action expert; depth, heads and head width must be the language model's."""
    action_dim: int = Field(default=32, ge=1, le=10_000)
    """Width to which state and action are padded."""
    horizon: int = Field(default=50, ge=1, le=10_000)
    """Actions that the model plans at once; it must be the checkpoint's, and at least the run's
    chunk, whose actions are the first of them."""

    sampler: Literal["ode", "flow_sde", "flow_cps", "flow_noise"] = "flow_sde"
    """How a denoise step is sampled: without noise (``ode``, which cannot be trained), or with
    noise of the given level (``flow_sde``, ``flow_cps``) or of a learned one (``flow_noise``)."""
    denoise_steps: int = Field(default=4, ge=2, le=1000)
    """Steps from noise to action, N."""
    noise_level: float = Field(default=0.5, ge=0.0, le=10.0)
    """eta of ``flow_sde`` and ``flow_cps``."""
    noise_annealing: Annealing | None = None
    """Changes the noise level from iteration to iteration, in the place of ``noise_level``."""
    noise_range: tuple[float, float] = (0.08, 0.16)
    """Least and largest deviation of ``flow_noise``."""
    joint_logprob: bool = False
    """Whether all steps are sampled with noise, and a log-prob is the mean over the first noise and
    them; otherwise one step is, drawn for each row, and the log-prob is that step's."""
    ignore_last: bool = False
    """Whether the last step is never the one that is drawn."""

    value: Literal["expert", "vlm", "none"] = "expert"
    """What the state value is read from: the expert's output, that of the vision-language model, or
    nothing."""
    value_hidden: tuple[Width, ...] = (512, 256, 128)
    """Widths of the value head's hidden layers."""
    value_chunk_only: bool = False
    """Whether the expert's output is averaged over the run's chunk, not over the whole horizon."""
    value_token: Literal["mean", "first", "last"] = "mean"
    """Which token's output of the vision-language model; ``mean`` averages over the cameras that
    are there and the whole prompt, padding included, as pi-RL does."""
    detach_value: bool = False
    """Whether the value's loss trains the value head alone."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in ("depth", "heads", "kv_heads", "head_dim"):
            found, wanted = getattr(self.expert, name), getattr(self.vlm, name)
            if found != wanted:
                raise ValueError(
                    f"expert.{name}={found}, wanted vlm.{name}={wanted}: they share attention"
                )
        if self.expert.width % 2:
            raise ValueError(f"expert.width={self.expert.width} is odd, wanted sines and cosines")
        low, high = self.noise_range
        if not 0 < low <= high:
            raise ValueError(f"noise_range is [{low}, {high}], wanted 0 < least <= largest")
        if self.sampler == "flow_cps" and not (self.joint_logprob or self.ignore_last):
            raise ValueError(
                "flow_cps has no noise in its last step, so drawing that step trains nothing: set "
                "ignore_last or joint_logprob"
            )
        if self.checkpoint is not None:
            if self.statistics is None:
                raise ValueError(
                    "a checkpoint without statistics: set statistics to its norm_stats.json, or to "
                    "the folder of its assets, or actions would be in the wrong units"
                )
            if self.tokenizer == "bytes":
                raise ValueError(
                    "a checkpoint with tokenizer=bytes: set tokenizer to PaliGemma's "
                    "tokenizer.json or tokenizer.model"
                )
        elif self.tokenizer == "bytes" and self.vocabulary < 259:
            raise ValueError(f"vocabulary={self.vocabulary}, but tokenizer=bytes needs 259 tokens")
        if self.unnorm_key and self.statistics is None:
            raise ValueError("unnorm_key without statistics: set both, or none")
        return self


class Pi05Config(Pi0Config):
    """pi0.5: the state stands in the prompt, and the expert's norms know the flow's time."""

    max_tokens: int = Field(default=200, ge=1, le=100_000)
    """Length to which prompts are padded, or cut with a warning."""
    normalization: Literal["z-score", "quantile"] = "quantile"
    """How state and action were normalised in training."""
    state_in_prompt: bool = True
    """Whether the prompt tells the state; some published checkpoints were tuned without."""
    denoise_steps: int = Field(default=3, ge=2, le=1000)
    """Steps from noise to action, N."""
    value: Literal["expert", "vlm", "none"] = "vlm"
    """What the state value is read from: the expert's output, that of the vision-language model, or
    nothing."""
    value_hidden: tuple[Width, ...] = (1024, 512, 256)
    """Widths of the value head's hidden layers."""
