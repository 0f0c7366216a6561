"""Plain PyTorch training loops as a strong engineer writes them: the baseline of `gpu.py`.

The models are a pre-norm Transformer for pairs and a decoder-only model. Both loops use the fused attention
kernel, one product for queries, keys and values, logits of real tokens only, fused AdamW, autocast, and
optionally `torch.compile`. The loss is not read in every step. There is no moving average of the weights. The
models share no code with Regard; the batches are Regard's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLIP = 1.0
BETAS = (0.9, 0.98)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a model."""

    symbols: int
    """Number of tokens of the vocabulary."""
    width: int
    heads: int
    inner: int
    """Inner width of the feed-forward layers."""
    layers: int
    """Number of layers; of encoder and of decoder layers for pairs."""
    longest: int
    """Largest number of tokens of a sequence."""
    dropout: float = 0.0


class PlainAttention(nn.Module):
    """Multi-head attention with the fused kernel. Without `memory`, self-attention."""

    def __init__(self, sizes: Sizes, *, cross: bool = False) -> None:
        super().__init__()
        width, self.heads, self.cross = sizes.width, sizes.heads, cross
        self.query = nn.Linear(width, width, bias=False) if cross else None
        self.joint = nn.Linear(width, (2 if cross else 3) * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(
        self, states: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attend from states (B, Tq, D) to memory (B, Tk, D). `mask`: (B, 1, 1, Tk), True = may attend."""
        if self.query is None or memory is None:
            parts = self.joint(states).chunk(3, -1)
        else:
            parts = (self.query(states), *self.joint(memory).chunk(2, -1))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        output: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return output


class PlainLayer(nn.Module):
    """A pre-norm layer: self-attention, optionally attention to the source, and a feed-forward network."""

    def __init__(self, sizes: Sizes, *, cross: bool = False) -> None:
        super().__init__()
        width, self.dropout = sizes.width, sizes.dropout
        self.attend = PlainAttention(sizes)
        self.read = PlainAttention(sizes, cross=True) if cross else None
        self.expand, self.contract = nn.Linear(width, sizes.inner), nn.Linear(sizes.inner, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))

    def forward(
        self, states: Tensor, mask: Tensor | None, memory: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return the next states (B, T, D). `mask`: of the states, or of the memory if there is one."""
        own = None if memory is not None else mask
        states = states + self._drop(self.attend(self.norms[0](states), mask=own, causal=causal))
        if self.read is not None:
            states = states + self._drop(self.read(self.norms[1](states), memory, mask))
        inner = F.gelu(self.expand(self.norms[-1](states)))
        return states + self._drop(self.contract(inner))

    def _drop(self, states: Tensor) -> Tensor:
        return F.dropout(states, self.dropout, self.training)


class PlainDecoderOnly(nn.Module):
    """Decoder-only model with learned positions and a tied output layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.symbols, sizes.width)
        self.positions = nn.Embedding(sizes.longest, sizes.width)
        self.layers = nn.ModuleList(PlainLayer(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        _initialize(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return states (B, T, D) of tokens (B, T)."""
        states = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            states = layer(states, None, causal=True)
        output: Tensor = self.norm(states)
        return output

    def loss(self, batch: Any, outputs: Tensor) -> Tensor:
        """Return the cross-entropy of a `TokenBatch` without padding."""
        states = self(batch.inputs)
        return F.cross_entropy(F.linear(states, self.tokens.weight).flatten(0, 1), batch.targets.flatten())


class PlainTransformer(nn.Module):
    """Encoder and decoder with learned positions; the embeddings and the output layer share one matrix."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.symbols, sizes.width)
        self.positions = nn.Embedding(sizes.longest, sizes.width)
        self.encoder = nn.ModuleList(PlainLayer(sizes) for _ in range(sizes.layers))
        self.decoder = nn.ModuleList(PlainLayer(sizes, cross=True) for _ in range(sizes.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))
        self.dropout = sizes.dropout
        _initialize(self)

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """Return decoder states (B, Tt, D)."""
        mask = source_mask[:, None, None]
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory, mask)
        memory, states = self.norms[0](memory), self._embed(target)
        for layer in self.decoder:
            states = layer(states, mask, memory, causal=True)
        output: Tensor = self.norms[1](states)
        return output

    def loss(self, batch: Any, outputs: Tensor) -> Tensor:
        """Return the cross-entropy of the real target tokens of a `PairBatch`, with label smoothing 0.1. `outputs`:
        (N,), their indices among all target steps."""
        states = self(batch.source, batch.source_mask, batch.target_in)
        states, target = (part.flatten(0, 1).index_select(0, outputs) for part in (states, batch.target))
        return F.cross_entropy(F.linear(states, self.tokens.weight), target, label_smoothing=0.1)

    def _embed(self, tokens: Tensor) -> Tensor:
        states = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.dropout(states, self.dropout, self.training)


def _initialize(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)


class StrongTraining:
    """A training of a plain model. `draw`: returns the next batch, on the CPU."""

    def __init__(
        self, model: Any, draw: Callable[[], Any], device: torch.device, dtype: torch.dtype, *, compiled: bool
    ) -> None:
        self.model, self.draw, self.device, self.dtype = model.to(device).train(), draw, device, dtype
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=BETAS, fused=True)
        if compiled and isinstance(model, PlainTransformer):  # batches have many shapes: one compilation per layer
            for layer in (*model.encoder, *model.decoder):
                layer.compile(dynamic=True)
        elif compiled:
            model.compile()

    def step(self) -> None:
        """Train on one batch, without waiting for the device."""
        host = self.draw()
        batch, outputs = host.to(self.device), host.outputs.to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            loss = self.model.loss(batch, outputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
