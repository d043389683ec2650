"""Names and shapes of all tensors that follow from a configuration, without torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from rlinf_plugin_pi0.config import GemmaSizes, Pi0Config, Pi05Config, VisionSizes

Shape = tuple[int, ...]

VLM = "paligemma_with_expert.paligemma.model."
EXPERT = "paligemma_with_expert.gemma_expert.model."
NOISE_HIDDEN = (128, 64)
"""Widths inside the noise head (pi-RL, arXiv 2510.25889)."""


def model_shapes(config: Pi0Config) -> Mapping[str, Shape]:
    """Return the tensors that acting needs, by openpi's names; the tied embedding counts once."""
    vlm, expert, adaptive = config.vlm, config.expert, isinstance(config, Pi05Config)
    w, a = expert.width, config.action_dim
    suffix = (
        {"time_mlp_in": (w, w), "time_mlp_out": (w, w)}
        if adaptive
        else {
            "state_proj": (w, a),
            "action_time_mlp_in": (w, 2 * w),
            "action_time_mlp_out": (w, w),
        }
    )
    linear = {
        VLM + "multi_modal_projector.linear": (vlm.width, config.vision.width),
        "action_in_proj": (w, a),
        "action_out_proj": (a, w),
        **suffix,
    }
    return {
        **{VLM + "vision_tower.vision_model." + k: s for k, s in _vision(config.vision)},
        VLM + "language_model.embed_tokens.weight": (config.vocabulary, vlm.width),
        **{VLM + "language_model." + k: s for k, s in _gemma(vlm, adaptive=False)},
        **{EXPERT + k: s for k, s in _gemma(expert, adaptive=adaptive)},
        **dict(_linears(linear)),
    }


def head_shapes(config: Pi0Config) -> Mapping[str, Shape]:
    """Return the tensors that reinforcement learning adds."""
    shapes: dict[str, Shape] = {}
    if config.value != "none":
        width = config.vlm.width if config.value == "vlm" else config.expert.width
        widths = (width, *config.value_hidden, 1)
        pairs = enumerate(itertools.pairwise(widths))
        shapes |= _linears({f"value_head.mlp.{2 * i}": (o, n) for i, (n, o) in pairs})
    if config.sampler == "flow_noise":
        shapes |= {"noise_head.logvar_min": (1,), "noise_head.logvar_max": (1,)}
        pairs = enumerate(
            itertools.pairwise((config.expert.width, *NOISE_HIDDEN, config.action_dim))
        )
        name = "noise_head.mlp_logvar.moduleList.{}.linear_1"
        shapes |= _linears({name.format(i): (o, n) for i, (n, o) in pairs})
    return shapes


def _vision(sizes: VisionSizes) -> Iterator[tuple[str, Shape]]:
    w, patch = sizes.width, sizes.patch_size
    yield "embeddings.patch_embedding.weight", (w, 3, patch, patch)
    yield "embeddings.patch_embedding.bias", (w,)
    yield "embeddings.position_embedding.weight", (sizes.patches, w)
    square = [f"self_attn.{n}_proj" for n in ("q", "k", "v", "out")]
    linear = {**dict.fromkeys(square, (w, w)), "mlp.fc1": (sizes.mlp, w), "mlp.fc2": (w, sizes.mlp)}
    norms = [f"{norm}.{part}" for norm in ("layer_norm1", "layer_norm2") for part in _BOTH]
    for i in range(sizes.depth):
        for name, shape in (*_linears(linear), *((norm, (w,)) for norm in norms)):
            yield f"encoder.layers.{i}.{name}", shape
    for part in _BOTH:
        yield f"post_layernorm.{part}", (w,)


def _gemma(sizes: GemmaSizes, adaptive: bool) -> Iterator[tuple[str, Shape]]:
    w, inner, shared = sizes.width, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (inner, w),
        "self_attn.k_proj.weight": (shared, w),
        "self_attn.v_proj.weight": (shared, w),
        "self_attn.o_proj.weight": (w, inner),
        "mlp.gate_proj.weight": (sizes.mlp, w),
        "mlp.up_proj.weight": (sizes.mlp, w),
        "mlp.down_proj.weight": (w, sizes.mlp),
        **_norm("input_layernorm", w, adaptive),
        **_norm("post_attention_layernorm", w, adaptive),
    }
    for i in range(sizes.depth):
        yield from ((f"layers.{i}.{name}", shape) for name, shape in layer.items())
    yield from _norm("norm", w, adaptive).items()


def _norm(name: str, width: int, adaptive: bool) -> dict[str, Shape]:
    if adaptive:
        return dict(_linears({f"{name}.dense": (3 * width, width)}))
    return {f"{name}.weight": (width,)}


def _linears(layers: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, Shape]]:
    for name, (outputs, inputs) in layers.items():
        yield f"{name}.weight", (outputs, inputs)
        yield f"{name}.bias", (outputs,)


_BOTH = ("weight", "bias")
