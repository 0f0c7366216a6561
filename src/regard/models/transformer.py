"""The Transformer (Vaswani et al. 2017): an encoder and a decoder made of attention layers.

    memory = encoder(positions(embedding(source) √D))                     B x Ts x D
    states = decoder(positions(embedding(target_in) √D), memory)          B x Tt x D
    logits = states Eᵀ                                                    B x Tt x vocabulary

E is the embedding of the target, which is also the output layer (section 3.4). The output layer is separate
without `tied`, and with concatenated positions, because the embeddings are then narrower than the states. If
source and target share a vocabulary, E is also the embedding of the source.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.arguments import Limits, check_fields, public
from regard.attention.blocks import EPSILON, STANDARD, Activation, Decoder, Dropout, Encoder, check_encoder_layer
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.positions import Positions, Rotary, find_positions, make_positions
from regard.attention.scores import find_score
from regard.models.base import CacheState, ModelConfig, Seq2Seq, positions_of_input, take_rows

POSITIONS = ("sinusoidal", "learned", "concatenated", "rotary", "none")


@public
@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Options of a Transformer."""

    hidden: Annotated[int, Limits(1, 65_536)] = 128
    """Width of all states."""
    heads: Annotated[int, Limits(1, 65_536)] = 4
    """Number of heads of each attention layer; a divisor of hidden."""
    enc_layers: Annotated[int, Limits(1, 100)] = 2
    """Number of encoder layers."""
    dec_layers: Annotated[int, Limits(1, 100)] = 2
    """Number of decoder layers."""
    inner: Annotated[int, Limits(1, 10**6)] = 256
    """Inner width of the feed-forward layers."""
    positions: str = "sinusoidal"
    """Positional encoding: sinusoidal or learned vectors added to the embeddings; sinusoidal vectors concatenated
    to them, half of hidden each (concatenated); rotation of queries and keys (rotary); none; or your own class as
    module:Class (see regard.attention.positions)."""
    layer: str = STANDARD
    """Class of the encoder layers: standard, or your own class as module:Class (width, heads, inner width)."""
    score: str = "scaled_dot"
    """Attention score of every head: dot, scaled_dot, general, concat, additive, or your own class as
    module:Class (see regard.attention.scores)."""
    attention: str = "softmax"
    """Attention mechanism: parts joined by commas, at most one of each slot, with numbers after a colon, such as
    alibi,sink or window:16. Score: dot, scaled_dot, general, concat, additive, cosine, soft_capped, scalable. Position:
    none, learned, sinusoidal, concatenated, rotary, alibi, t5. Mask: causal, window, streaming. Normalizer: softmax,
    softmax_one, sink, sigmoid, sparsemax, entmax, topk. Gate: output_gate, head_gate. Combination: differential,
    talking_heads, forgetting, selective. Keys: multi_query, grouped, latent, shifted_keys. Instead of scores: linear,
    gated_linear, delta_rule. Or your own part as module:Class. Parts replace --score and --positions. A part acts in
    the layers in which it has a meaning. See docs/reference/mechanisms.md."""
    pre_norm: bool = True
    """Normalize before each layer; with --no-pre_norm, normalize after each residual sum, as in the paper."""
    norm: Literal["layer", "none"] = "layer"
    """Normalization: layer normalization, or none."""
    norm_epsilon: Annotated[float, Limits(0, 1, "both")] = EPSILON
    """Number added to the variance in normalization (above 0)."""
    activation: Activation = "relu"
    """Activation function of the feed-forward layers."""
    bias: bool = False
    """Use biases in the attention projections."""
    tied: bool = True
    """Use the target embedding as the output layer. With --no-tied or concatenated positions, the output layer
    is a separate matrix."""
    output_bias: bool = False
    """Add a bias for each symbol to the output layer."""
    dropout: Annotated[float, Limits(0, 1, "high")] = 0.1
    """Dropout rate for the embeddings and the output of each layer."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value out of range, or for incompatible values."""
        check_fields(self)
        find_score(self.score)
        find_positions(self.positions, POSITIONS)
        mechanism = self.mechanism
        mechanism.check_kinds(("causal", "self", "cross"), positions=POSITIONS)
        check_encoder_layer(self.layer)
        self.check_heads(self.hidden, self.heads)
        self.check_even(self.hidden, self.hidden // self.heads)


class TransformerMemory(NamedTuple):
    """Keys and values to which the decoder attends."""

    layers: tuple[KeyValues, ...]
    """Keys and values of the source for each decoder layer, (B, H, Ts, d) each."""
    mask: Tensor
    """(B, 1, Ts) bool, True before the end."""

    def keep(self, sources: Tensor) -> "TransformerMemory":
        """Select sources by their indices (B',) int64."""
        return TransformerMemory(take_rows(self.layers, sources), self.mask[sources])


@public
class Transformer(Seq2Seq):
    """Transformer (equations at the top of this file).

    Attention layers are `encoder.layers.N.self_attention`, `decoder.layers.N.self_attention` and
    `decoder.layers.N.cross`. `longest`: number of learned positions. `shared`: whether source and target have
    one vocabulary and one embedding.

    >>> config = TransformerConfig(hidden=8, heads=2)
    >>> model = Transformer(config, source_symbols=9, target_symbols=11, longest=20)
    >>> source = torch.full((2, 5), 4)
    >>> model(source, source > 0, torch.full((2, 3), 4)).shape
    torch.Size([2, 3, 11])
    """

    config_class = TransformerConfig
    compilable = True

    def __init__(
        self, config: TransformerConfig, *, source_symbols: int, target_symbols: int, longest: int, shared: bool = False
    ) -> None:
        super().__init__()
        width, concatenated = config.hidden, config.embedding_positions == "concatenated"
        embedded = width // 2 if concatenated else width
        self.source_embedding = None if shared else nn.Embedding(source_symbols, embedded)
        self.target_embedding = nn.Embedding(target_symbols, embedded)
        self.scale = math.sqrt(embedded)
        positions = config.embedding_positions
        self.source_positions = make_positions(positions, width, longest)
        self.target_positions = make_positions(positions, width, longest)
        self.dropout = Dropout(config.dropout)
        options: dict[str, Any] = {
            "pre_norm": config.pre_norm,
            "dropout": config.dropout,
            "score": find_score(config.score),
            "rotary": config.embedding_positions == "rotary",
            "mechanism": config.mechanism,
            "activation": config.activation,
            "bias": config.bias,
            "epsilon": config.norm_epsilon,
            "norm": config.norm,
        }
        self.encoder = Encoder(config.enc_layers, width, config.heads, config.inner, layer=config.layer, **options)
        self.decoder = Decoder(config.dec_layers, width, config.heads, config.inner, **options)
        self.output = None if config.tied and not concatenated else nn.Linear(width, target_symbols, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(target_symbols)) if config.output_bias else None
        self.cross_layers = tuple(f"decoder.layers.{layer}.cross" for layer in range(config.dec_layers))
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize matrices with Glorot's uniform distribution, and embeddings with variance 1 after scaling by √D.

        The values of query, key and value matrices are divided by √2, as in PyTorch's layer, where the three matrices
        are parts of one matrix. With larger values and without `pre_norm`, cross-attention is learned late or never.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / self.scale)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                for projection in (module.query, module.key, module.value):
                    projection.weight.mul_(math.sqrt(1 / 2))

    @property
    def input_embedding(self) -> nn.Module:
        return self.source_embedding or self.target_embedding

    @property
    def input_positions(self) -> Positions | Rotary | None:
        return positions_of_input(self.source_positions, self.encoder)

    def encode(self, source: Tensor, source_mask: Tensor) -> TransformerMemory:
        """Return the memory of sources (B, Ts), with `source_mask` (B, Ts) True before the end."""
        # The mask has three dimensions, because a mask of two dimensions could also be (Tq, Tk).
        mask = source_mask.unsqueeze(1)
        return TransformerMemory(tuple(self.decoder.project(self.encoder(self.embedded(source), mask))), mask)

    def embedded(self, source: Tensor) -> Tensor:
        """Return the input (B, Ts, D) of the encoder for sources (B, Ts)."""
        return self._embed(self.input_embedding, self.source_positions, source)

    def read(self, target_in: Tensor, memory: TransformerMemory, forced: Tensor | None = None) -> Tensor:
        """Return the states (B, Tt, D) of the decoder for target_in (B, Tt). `forced` must be None."""
        assert forced is None, "scheduled sampling needs a recurrent model: a Transformer reads all steps at once"
        states: Tensor = self.decoder(self.embed(target_in, 0), memory.layers, memory.mask)[0]
        return states

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (V, D) of the target embedding or of a separate layer, and bias (V,) or None."""
        return (self.target_embedding if self.output is None else self.output).weight, self.output_bias

    def start(self, memory: TransformerMemory) -> CacheState:
        """Return the state before the first step, with one hypothesis per source."""
        # Projecting one step and dropping the result creates empty keys and values of the correct shape for any
        # score and number of heads.
        layers: list[Any] = [layer.self_attention for layer in self.decoder.layers]
        step = memory.layers[0].values.new_zeros(len(memory.mask), 1, layers[0].memory_width)
        past = tuple(layer.project(step).map(lambda states: states[:, :, :0]) for layer in layers)
        return CacheState(past, len(memory.mask), memory)

    def step(self, tokens: Tensor, state: CacheState) -> tuple[Tensor, CacheState]:
        """Append one token (B, K) to each hypothesis. Returns the decoder's states (B, K, D) and the next state."""
        states = self.embed(tokens.reshape(-1, 1), state.time)
        states, past = self.decoder(states, state.memory.layers, state.memory.mask, past=state.past)
        return states.view(*tokens.shape, -1), state._replace(past=tuple(past))

    def embed(self, tokens: Tensor, offset: int) -> Tensor:
        """Return the input (N, T, D) of the decoder for tokens (N, T) from position `offset` on."""
        return self._embed(self.target_embedding, self.target_positions, tokens, offset)

    def _embed(self, embedding: nn.Module, positions: nn.Module | None, tokens: Tensor, offset: int = 0) -> Tensor:
        states = embedding(tokens) * self.scale
        embedded: Tensor = self.dropout(states if positions is None else positions(states, offset))
        return embedded
