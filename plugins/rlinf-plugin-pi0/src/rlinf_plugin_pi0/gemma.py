"""Gemma as pi0 uses it: one layer class for the language model and for the action expert.

The language model runs over the prefix (images and prompt) and leaves each layer's keys and values;
the expert's layer of the same depth attends to them beside its own. That is what "shared attention"
comes to, as the prefix never looks at the suffix. The expert of pi0.5 has adaptive norms: scale,
shift and gate come from the flow's time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP, apply_rotary_pos_emb

from rlinf_plugin_pi0.config import GemmaSizes

EPSILON = 1e-6
ROPE_BASE = 10_000.0
ACTIVATION = "gelu_pytorch_tanh"
HIDDEN = -2.3819763e38
"""Added to the score of what may not be seen. Finite, so that a query that sees nothing (padding)
attends to everything alike, as in the reference, and not to NaN."""

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, [B, kv_heads, T, head_dim] each."""


class Norm(nn.Module):
    """RMS norm, computed in float32: ``x / rms(x) * (1 + weight)``.

    With a condition [B, condition] it is adaptive (as in DiT, arXiv 2212.09748, section 3.2):
    ``x / rms(x) * (1 + scale) + shift``, and a gate for the residual; ``dense`` gives all three.

    Args:
        width: of ``x``.
        condition: width of the condition; 0 for a plain norm.
    """

    def __init__(self, width: int, condition: int = 0) -> None:
        super().__init__()
        if condition:
            self.dense = nn.Linear(condition, 3 * width)
        else:
            self.weight = nn.Parameter(torch.zeros(width))
        self.adaptive = condition > 0

    def forward(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """Return the normalised [B, T, width] in the dtype of ``x``, and the gate (1 if plain)."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        if not self.adaptive:
            return (wide * (1.0 + self.weight.float())).to(x.dtype), 1.0
        assert condition is not None
        both = self.dense(condition.to(self.dense.weight.dtype)).unsqueeze(1)  # [B, 1, 3 * width]
        scale, shift, gate = both.chunk(3, dim=-1)
        return (wide * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class Attention(nn.Module):
    """Rotary attention over own keys and, before them, those of a prefix."""

    def __init__(self, sizes: GemmaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        inner, shared = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q_proj = nn.Linear(sizes.width, inner, bias=False)
        self.k_proj = nn.Linear(sizes.width, shared, bias=False)
        self.v_proj = nn.Linear(sizes.width, shared, bias=False)
        self.o_proj = nn.Linear(inner, sizes.width, bias=False)

    def forward(
        self, x: Tensor, rotation: KeyValue, mask: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Return the output [B, T, width] and the own keys and values."""
        query, key, value = (
            proj(x).unflatten(-1, (-1, self.sizes.head_dim)).transpose(1, 2)  # [B, heads, T, dim]
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        own = key, value
        if past is not None:
            key = torch.cat([past[0].to(key.dtype), key], dim=2)
            value = torch.cat([past[1].to(value.dtype), value], dim=2)
        # every query head sees the one key head of its group, without copies of it
        group = self.sizes.heads // self.sizes.kv_heads
        key, value = (
            part.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(1, 2) for part in (key, value)
        )
        mask = mask.clamp(min=torch.finfo(query.dtype).min).to(query.dtype)  # finite in fp16, too
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2)), own


class Layer(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm and beside a residual.

    Args:
        sizes: of the Gemma.
        condition: width of the condition of adaptive norms; 0 for plain ones.
    """

    def __init__(self, sizes: GemmaSizes, condition: int = 0) -> None:
        super().__init__()
        self.self_attn = Attention(sizes)
        self.mlp = GemmaMLP(
            GemmaConfig(hidden_size=sizes.width, intermediate_size=sizes.mlp, hidden_act=ACTIVATION)
        )
        self.input_layernorm = Norm(sizes.width, condition)
        self.post_attention_layernorm = Norm(sizes.width, condition)

    def forward(
        self,
        x: Tensor,
        rotation: KeyValue,
        mask: Tensor,
        past: KeyValue | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """Return [B, T, width], and keys and values of these T tokens."""
        normed, gate = self.input_layernorm(x, condition)
        attended, own = self.self_attn(normed, rotation, mask, past)
        x = x + attended * gate
        normed, gate = self.post_attention_layernorm(x, condition)
        return x + self.mlp(normed) * gate, own


class Gemma(nn.Module):
    """Layers and a last norm over embeddings that are given.

    Attributes:
        checkpointing: whether each layer's activations are computed again for the gradient.

    Args:
        sizes: depth, widths and heads.
        vocabulary: number of tokens to embed; 0 for none, as in the expert.
        condition: width of the condition of adaptive norms; 0 for plain ones.
    """

    def __init__(self, sizes: GemmaSizes, vocabulary: int = 0, condition: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        self.checkpointing = False
        if vocabulary:
            self.embed_tokens = nn.Embedding(vocabulary, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes, condition) for _ in range(sizes.depth))
        self.norm = Norm(sizes.width, condition)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        visible: Tensor,
        past: list[KeyValue] | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Run T tokens, which may look at P tokens before them.

        Args:
            x: embeddings [B, T, width].
            positions: int64 [B, T].
            visible: bool [B, T, P + T], which keys a query sees.
            past: keys and values of the P tokens, layer by layer.
            condition: [B, condition], for adaptive norms.

        Returns:
            float32 [B, T, width] behind the last norm, and each layer's own keys and values.
        """
        x = x.to(self.layers[0].self_attn.q_proj.weight.dtype)
        rotation = _rotation(positions, self.sizes.head_dim, x.dtype)
        mask = torch.where(visible.unsqueeze(1), 0.0, HIDDEN)  # [B, 1, T, P + T]
        cache = []
        for depth, layer in enumerate(self.layers):
            given = x, rotation, mask, None if past is None else past[depth], condition
            if self.checkpointing and torch.is_grad_enabled():
                x, own = checkpoint(layer, *given, use_reentrant=False)
            else:
                x, own = layer(*given)
            cache.append(own)
        return self.norm(x, condition)[0].float(), cache


def _rotation(positions: Tensor, width: int, dtype: torch.dtype) -> KeyValue:
    """Return cosine and sine [B, T, width] of rotary positions (RoFormer, arXiv 2104.09864)."""
    half = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angle = positions.float().unsqueeze(-1) * ROPE_BASE**-half  # [B, T, width / 2]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)
