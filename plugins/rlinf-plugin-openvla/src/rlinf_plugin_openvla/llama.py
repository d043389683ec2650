"""transformers' Llama, run layer by layer with keys and values that are kept here.

transformers has renamed its cache and changed how it is made between the releases this works on, so
none of it is used: a layer's own ``forward`` is called, and the attention function that stands
behind it keeps keys and values itself. Adapters, sharding and gradient checkpointing work as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

ATTENTION = "rlinf_openvla"


class KeyValues:
    """Keys and values of the positions so far, for decoding without gradients.

    Args:
        capacity: most positions there will be.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._length: dict[int, int] = {}
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of new positions, [B, heads, T, D]; return all of the layer."""
        if layer not in self._kept:
            shape = (*key.shape[:2], self._capacity, key.shape[3])
            self._kept[layer] = key.new_empty(shape), value.new_empty(shape)
        begin = self._length.get(layer, 0)
        end = self._length[layer] = begin + key.shape[2]
        keys, values = self._kept[layer]
        keys[:, :, begin:end], values[:, :, begin:end] = key, value
        return keys[:, :, :end], values[:, :, :end]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    memory: KeyValues | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend by a boolean mask [B, 1, queries, keys], to what ``memory`` keeps as well."""
    if memory is not None:
        key, value = memory.extend(int(module.layer_idx), key, value)
    if groups := query.shape[1] // key.shape[1] - 1:
        key, value = (t.repeat_interleave(groups + 1, dim=1) for t in (key, value))
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention)


def make_llama(text: Mapping[str, Any]) -> LlamaForCausalLM:
    """Return a language model with initial weights; ``text`` is a ``text_config``."""
    options = {k: v for k, v in text.items() if k not in ("model_type", "torch_dtype", "dtype")}
    config = LlamaConfig(**options)
    config._attn_implementation = ATTENTION
    return LlamaForCausalLM(config)


def reset_rotary(model: LlamaForCausalLM) -> None:
    """Compute again what is not among the weights, after they were made without memory."""
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config=model.config)


def run_llama(
    model: LlamaForCausalLM,
    embeddings: Tensor,
    mask: Tensor,
    positions: Tensor,
    memory: KeyValues | None = None,
    recompute: bool = False,
) -> Tensor:
    """Return the hidden states after the final norm.

    Args:
        model: the language model.
        embeddings: [B, T, D] of the new positions.
        mask: bool [B, 1, T, keys]: what each may see, of ``memory`` and of the new ones.
        positions: int64 [B, T].
        memory: keys and values of the positions before, to which the new ones are added.
        recompute: compute each layer again in the backward pass, and keep nothing of it.

    Returns:
        [B, T, D].
    """
    inner = model.model
    hidden = embeddings
    rotary = inner.rotary_emb(hidden, positions)
    given = {
        "attention_mask": mask,
        "position_ids": positions,
        "position_embeddings": rotary,
        "memory": memory,
    }
    for layer in inner.layers:
        if recompute and torch.is_grad_enabled():
            out = checkpoint(layer, hidden, use_reentrant=False, **given)
        else:
            out = layer(hidden, **given)
        hidden = out[0] if isinstance(out, tuple) else out
    normed: Tensor = inner.norm(hidden)
    return normed


def causal(valid: Tensor) -> Tensor:
    """Return bool [B, 1, T, T] of which keys are valid [B, T]: each sees those up to itself."""
    length = valid.shape[1]
    lower = torch.ones(length, length, dtype=torch.bool, device=valid.device).tril()
    return lower & valid[:, None, None, :]


def positions_of(valid: Tensor) -> Tensor:
    """Return int64 [B, T]: positions count valid tokens [B, T] only, so padding shifts nothing."""
    return (valid.cumsum(dim=1) - 1).clamp(min=0)
