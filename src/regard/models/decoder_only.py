"""Decoder-only language models: GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023).

    x = embedding(tokens) + positions                B x T x D
    x = x + attention(norm(x))                       in each layer; a step attends to itself and to earlier steps
    x = x + feed_forward(norm(x))
    logits = norm(x) Eᵀ                              B x T x V

E is the embedding. It is another matrix if `tied` is False or positions are concatenated. Options of both papers:

    GPT-2    positions learned, norm layer, activation gelu_tanh, bias, tied
    Llama    positions rotary, norm rms, activation swiglu, no bias, not tied; key_value_heads from version 2 on

Departures: dropout acts on embeddings and on the output of each layer, not on attention weights.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.arguments import Limits, check_fields, public
from regard.attention.blocks import EPSILON, Block, Dropout, FeedForward, GatedActivation, LayerStack, Norm, Residual
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.parts import Part
from regard.attention.positions import BASE, Positions, Rotary, make_positions
from regard.attention.scores import Score
from regard.errors import InputError, check_range
from regard.models.base import CacheState, LanguageModel, ModelConfig, positions_of_input

STD = 0.8
"""Standard deviation of initial matrices, times the root of the width.

GPT-2's constant 0.02 is 0.55 / sqrt(768). With this constant and a width of 64, attention forms slowly: two
layers do not learn induction in 800 steps. With 0.1, they do."""


@public
@dataclass(frozen=True, kw_only=True)
class DecoderOnlyConfig(ModelConfig):
    """Options of a decoder-only language model."""

    hidden: Annotated[int, Limits(1, 10**6)] = 64
    """Width of all states."""
    layers: Annotated[int, Limits(1, 1000)] = 2
    """Number of layers."""
    heads: Annotated[int, Limits(1, 10**6)] = 4
    """Number of heads of each attention layer; a divisor of hidden, unless head_size is given."""
    head_size: int | None = None
    """Width of each head. Default: hidden / heads."""
    key_value_heads: int | None = None
    """Number of heads of keys and values, each shared by heads / key_value_heads heads of queries (Ainslie et
    al. 2023). Default: heads."""
    feed_forward: bool = True
    """Add a feed-forward layer after each attention layer. With --no-feed_forward, the model has only attention
    layers."""
    inner: Annotated[int, Limits(1, 10**6)] = 256
    """Inner width of the feed-forward layers."""
    attention: str = "softmax"
    """Attention mechanism: parts joined by commas, at most one of each slot, with numbers after a colon, such as
    alibi,sink or window:16. Score: dot, scaled_dot, general, concat, additive, cosine, soft_capped, scalable.
    Position: none, learned, sinusoidal, concatenated, rotary, alibi, t5. Mask: causal, window, streaming.
    Normalizer: softmax, softmax_one, sink, sigmoid, sparsemax, entmax, topk. Gate: output_gate, head_gate.
    Combination: differential, talking_heads, forgetting, selective. Keys: multi_query, grouped, latent,
    shifted_keys. Instead of scores: linear, gated_linear, delta_rule. Or your own part as module:Class. A
    position part replaces --positions, a sharing part --key_value_heads. See docs/reference/mechanisms.md."""
    positions: Literal["learned", "sinusoidal", "concatenated", "rotary", "none"] = "learned"
    """Positional encoding: learned or sinusoidal vectors added to the embeddings; sinusoidal vectors concatenated
    to them, half of hidden each (concatenated); rotation of queries and keys (rotary); or none."""
    rotary_base: Annotated[float, Limits(1, math.inf, "both")] = BASE
    """Base of the wavelengths of rotary positions (above 1). Llama 2: 10000; Llama 3: 500000."""
    norm: Norm = "layer"
    """Normalization: layer normalization (layer, GPT-2), division by the root mean square (rms, Llama), or none."""
    norm_epsilon: Annotated[float, Limits(0, 1, "both")] = EPSILON
    """Number added to the variance in normalization (above 0)."""
    pre_norm: bool = True
    """Normalize before each layer; with --no-pre_norm, normalize after each residual sum."""
    activation: GatedActivation = "gelu"
    """Activation function of the feed-forward layers: relu, gelu, gelu_tanh (GPT-2's approximation), or swiglu
    (Llama)."""
    bias: bool = False
    """Use biases in projections, feed-forward layers and layer normalization."""
    tied: bool = True
    """Use the embedding as the output layer. With --no-tied or concatenated positions, the output layer is a
    separate matrix."""
    init_std: Annotated[float, Limits(0, 10, "both")] | None = None
    """Standard deviation of the initial matrices (above 0). Default: 0.8 / sqrt(hidden). GPT-2: 0.02."""
    dropout: Annotated[float, Limits(0, 1, "high")] = 0.0
    """Dropout rate for the embeddings and the output of each layer."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value that is out of range, or for incompatible values."""
        check_fields(self)
        self.mechanism.check_kinds(["causal"], positions=("learned", "sinusoidal", "concatenated", "none"))
        position = self.mechanism.slots.get("position")
        if position is not None and position.cls is Rotary and self.rotary_base != BASE:
            raise InputError(
                f"rotary_base {self.rotary_base:g} and attention part {position.name} both choose the base: "
                f"leave rotary_base out, and write rotary:{self.rotary_base:g}"
            )
        if self.head_size is None:
            self.check_heads(self.hidden, self.heads, ", or give --head_size")
        check_range("head_size", self.head_width, 1, 10**6)
        self.check_even(self.hidden, self.head_width)
        if self.key_value_heads is not None:
            check_range("key_value_heads", self.key_value_heads, 1, self.heads)
            if self.heads % self.key_value_heads:
                raise InputError(
                    f"heads {self.heads} cannot share {self.key_value_heads} heads of keys: choose a divisor "
                    f"of {self.heads}"
                )

    @property
    def head_width(self) -> int:
        """Width of each head."""
        return self.hidden // self.heads if self.head_size is None else self.head_size

    @property
    def norm_options(self) -> dict[str, Any]:
        """Where normalization is, and its kind, for layers and stacks."""
        return {"pre_norm": self.pre_norm, "epsilon": self.norm_epsilon, "norm": self.norm, "bias": self.bias}


class LayerOutput(NamedTuple):
    """States (B, T, D) after a layer, and its keys and values of all steps so far."""

    states: Tensor
    cache: KeyValues


class DecoderOnlyLayer(Block):
    """Causal self-attention and a feed-forward network, each with a residual connection."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        residual: dict[str, Any] = {**config.norm_options, "dropout": config.dropout}
        self.self_attention = MultiHeadAttention(
            config.hidden,
            config.heads,
            head_width=config.head_width,
            groups=config.key_value_heads,
            bias=config.bias,
            rotary=config.embedding_positions == "rotary",
            rotary_base=config.rotary_base,
            mechanism=config.mechanism.for_kind("causal"),
            kind="causal",
        )
        self.attention_residual = Residual(config.hidden, **residual)
        self.feed_forward: FeedForward | None = None
        if config.feed_forward:
            self.feed_forward = FeedForward(config.hidden, config.inner, config.activation, bias=config.bias)
            self.feed_forward_residual = Residual(config.hidden, **residual)

    def forward(self, states: Tensor, past: KeyValues | None = None) -> LayerOutput:
        """Return states (B, T, D), and the keys and values of all steps so far, which are `past` in the next call.

        `states` contains all steps without `past`, and the steps after `past` otherwise.
        """
        cache: list[KeyValues] = []
        step = None if past is None else past.keys.shape[2]

        def attend(inputs: Tensor) -> Tensor:
            context, key_values = self.self_attention.attend_self(inputs, past=past, causal=True, step=step)
            cache.append(key_values)
            return context

        states = self.attention_residual(states, attend)
        if self.feed_forward is not None:
            states = self.feed_forward_residual(states, self.feed_forward)
        return LayerOutput(states, cache[0])


class DecoderStack(LayerStack):
    """All layers, and the final normalization."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        layers = (DecoderOnlyLayer(config) for _ in range(config.layers))
        super().__init__(layers, config.hidden, **config.norm_options)

    def forward(
        self, states: Tensor, past: tuple[KeyValues, ...] | None = None
    ) -> tuple[Tensor, tuple[KeyValues, ...]]:
        """Return states (B, T, D), and the keys and values of each layer for all steps so far."""
        cache = []
        for layer, before in zip(self.layers, past or [None] * len(self.layers), strict=True):
            states, key_values = layer(states, before)
            cache.append(key_values)
        return self.norm(states), tuple(cache)


@public
class DecoderOnly(LanguageModel):
    """Decoder-only language model, defined in the docstring of the module. Attention layers are
    `decoder.layers.N.self_attention`.

    >>> model = DecoderOnly(DecoderOnlyConfig(hidden=8, heads=2), symbols=11, longest=20)
    >>> model(torch.full((2, 5), 4)).shape
    torch.Size([2, 5, 11])
    """

    config_class = DecoderOnlyConfig
    compilable = True

    def __init__(self, config: DecoderOnlyConfig, *, symbols: int, longest: int, input_width: int = 0) -> None:
        super().__init__()
        width, self.longest = config.hidden, longest
        concatenated = config.embedding_positions == "concatenated"
        embedded = width // 2 if concatenated else width
        # Embeddings are much smaller than sinusoidal vectors, so they are scaled as in the Transformer.
        sinusoidal = concatenated or config.embedding_positions == "sinusoidal"
        self.scale = math.sqrt(embedded) if sinusoidal else 1.0
        self.embedding = nn.Linear(input_width, embedded) if input_width else nn.Embedding(symbols, embedded)
        self.positions = make_positions(config.embedding_positions, width, longest)
        self.dropout = Dropout(config.dropout)
        self.decoder = DecoderStack(config)
        separate = bool(input_width) or concatenated or not config.tied
        self.output = nn.Linear(width, symbols, bias=False) if separate else None
        self.cross_layers = tuple(f"decoder.layers.{layer}.self_attention" for layer in range(config.layers))
        self._initialize(config)

    @torch.no_grad()
    def _initialize(self, config: DecoderOnlyConfig) -> None:
        """Sample all matrices from a normal distribution. The deviation is smaller for matrices before a residual sum
        (Radford et al. 2019, section 2.3), so that the variance of states does not grow with the number of layers."""
        std = STD / math.sqrt(config.hidden) if config.init_std is None else config.init_std
        sums = config.layers * (2 if config.feed_forward else 1)
        kept = {
            parameter
            for module in self.modules()
            if isinstance(module, Part | Score)  # these set their own parameters; their matrices are modules
            for parameter in module.parameters(recurse=False)
        }
        for name, parameter in self.named_parameters():
            if parameter in kept:
                continue
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                last = name.endswith(("self_attention.output.weight", "feed_forward.outer.weight"))
                nn.init.normal_(parameter, std=std / math.sqrt(sums) if last else std)
        if self.scale != 1:
            nn.init.normal_(self.embedding.weight, std=1 / self.scale)

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    @property
    def input_positions(self) -> Positions | Rotary | None:
        return positions_of_input(self.positions, self)

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight (V, D) of the embedding or of a separate layer. The bias is None."""
        return (self.embedding if self.output is None else self.output).weight, None

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the states (B, T, D) of all steps.

        `mask` is not used. Padding is on the right, so no token before the padding attends to the padding.
        """
        states: Tensor = self.decoder(self.embed(tokens))[0]
        return states

    def embed(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Return the input of the first layer for inputs (B, T) or (B, T, W) that start at position `offset`."""
        states = self.embedding(tokens)
        states = states if self.scale == 1 else states * self.scale
        states = states if self.positions is None else self.positions(states, offset)
        embedded: Tensor = self.dropout(states)
        return embedded

    def start(self, prompt: Tensor) -> tuple[Tensor, CacheState]:
        """Return the states (B, 1, D) of the last position of prompts (B, T), and the state after the prompts."""
        states, past = self.decoder(self.embed(prompt))
        return states[:, -1:], CacheState(past, len(prompt))

    def step(self, tokens: Tensor, state: CacheState) -> tuple[Tensor, CacheState]:
        """Feed one token (B, K) to each hypothesis, and return states (B, K, D) and the next state."""
        states, past = self.decoder(self.embed(tokens.reshape(-1, 1), state.time), state.past)
        return states.view(*tokens.shape, -1), CacheState(past, state.prompts)
