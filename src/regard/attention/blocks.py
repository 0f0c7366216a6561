"""Blocks that wrap attention: residual, normalisation, feed-forward (Vaswani et al. 2017, figure 1).

Normalisation comes after each residual sum, as in the paper: `norm(x + layer(x))`.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.single import Attention


class FeedForward(nn.Module):
    """The point-wise network of section 3.3: `W2 relu(W1 x + b1) + b2`, the same at every position."""

    def __init__(self, width: int, inner_width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)

    def forward(self, states: Tensor) -> Tensor:
        """Map states (..., D) to (..., D)."""
        return self.outer(F.relu(self.inner(states)))


def attention_layer(width: int, heads: int | None) -> Attention | MultiHeadAttention:
    """Return the attention layer with `heads` heads, or the single-head one without projections for None."""
    return Attention() if heads is None else MultiHeadAttention(width, heads)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with residual and normalisation (section 3.1)."""

    def __init__(self, width: int, heads: int | None, inner_width: int) -> None:
        super().__init__()
        self.self_attention = attention_layer(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, inner_width)
        self.feed_forward_norm = nn.LayerNorm(width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return states (B, T, D) for states (B, T, D); `mask` (B, T) or (B, T, T)."""
        states = self.attention_norm(states + self.self_attention(states, states, states, mask))
        return self.feed_forward_norm(states + self.feed_forward(states))
