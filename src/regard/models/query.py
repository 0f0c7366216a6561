"""The query model of the primer. A learned query for each output step attends to the input.

    memory  = encode(letters)                             B x T x D
    states  = norm(queries + attention(queries, memory))  B x To x D
    states  = norm(states + attention(states, states))    with `self_att`
    logits  = states W + b                                B x To x classes

The queries are a positional encoding of the outputs, with one learned vector for each output step. The keys are
the outputs of a dense layer for the one-hot letters. The values are equal to the keys.

Letters: B batch, T input steps, To output steps, D width (`hidden`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import fast
from regard.arguments import Limits, check_fields, public
from regard.attention.blocks import (
    STANDARD,
    EncoderLayer,
    attention_layer,
    check_encoder_layer,
    make_encoder_layer,
    make_norm,
)
from regard.attention.layer import AttentionLayer, check_without_projections
from regard.attention.positions import LearnedPositions, Positions, Sinusoidal, find_positions, make_positions
from regard.attention.scores import find_score
from regard.fast.query_gradient import QueryGradient
from regard.models.base import AnswerModel, ModelConfig

POSITIONS = ("learned", "sinusoidal")


@public
@dataclass(frozen=True, kw_only=True)
class QueryModelConfig(ModelConfig):
    """Options of a query model."""

    hidden: Annotated[int, Limits(1, 65_536)] = 64
    """Width of queries, keys and values."""
    enc_layers: Annotated[int, Limits(0, 100)] = 0
    """Number of encoder layers: self-attention and a feed-forward network over the input."""
    multihead: bool = False
    """Use several heads with projections in every attention layer; without this flag, each layer has one head
    without projections."""
    heads: Annotated[int, Limits(1, 65_536)] = 4
    """Number of heads of each attention layer with --multihead; a divisor of hidden."""
    pos_enc: bool = False
    """Add a positional encoding to the input."""
    positions: str = "learned"
    """Positional encoding with --pos_enc: learned, sinusoidal, or your own class as module:Class (see
    regard.attention.positions)."""
    layer: str = STANDARD
    """Class of the encoder layers: standard, or your own class as module:Class (width, heads, inner width)."""
    score: str = "scaled_dot"
    """Attention score: dot, scaled_dot, general, concat, additive, or your own class as module:Class (see
    regard.attention.scores)."""
    attention: str = "softmax"
    """Attention mechanism: parts joined by commas, at most one of each slot, with numbers after a colon, such as
    alibi,sink or window:16. Score: dot, scaled_dot, general, concat, additive, cosine, soft_capped, scalable.
    Position: rotary, alibi, t5. Mask: causal, window, streaming. Normalizer: softmax, softmax_one, sink, sigmoid,
    sparsemax, entmax, topk. Gate: output_gate, head_gate. Combination: differential, talking_heads. Keys:
    multi_query, grouped, latent, shifted_keys. Instead of scores: linear. Or your own part as module:Class. A
    part acts in the layers in which it has a meaning: masks and positions only in self- attention, position,
    gate, combination, keys and linear only with --multihead. See docs/reference/mechanisms.md."""
    self_att: bool = False
    """Add self-attention of the output steps before the last layer."""
    norm: Literal["layer", "none"] = "layer"
    """Normalization after each residual sum: layer normalization, or none."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value out of range."""
        check_fields(self)
        find_score(self.score)
        has_self = self.self_att or (self.enc_layers > 0 and self.layer == STANDARD)
        self.mechanism.check_kinds(["cross", "self"] if has_self else ["cross"])
        if not self.multihead:
            check_without_projections(self.mechanism)
        find_positions(self.positions, POSITIONS)
        check_encoder_layer(self.layer)
        if self.multihead:
            self.check_heads(self.hidden, self.heads)


@public
class QueryModel(AnswerModel):
    """Learned queries attend to encoded letters (equations at the top of this file).

    With `vary_len`, the memory has an additional learned vector as key and value. Attention computes averages.
    Without a constant key, "A" and "AA" have the same context, so the model cannot count letters in sequences
    of unknown length.

    >>> model = QueryModel(QueryModelConfig(hidden=8), letters=4, input_len=6, outputs=3, classes=7)
    >>> model(torch.zeros(2, 6, dtype=torch.int64)).shape
    torch.Size([2, 3, 7])
    """

    config_class = QueryModelConfig
    cross_layers = ("cross",)

    def __init__(
        self,
        config: QueryModelConfig,
        *,
        letters: int,
        input_len: int,
        outputs: int,
        classes: int,
        vary_len: bool = False,
    ) -> None:
        super().__init__()
        width, heads = config.hidden, config.heads if config.multihead else None
        score = find_score(config.score)
        options: dict[str, Any] = {"score": score, "mechanism": config.mechanism, "norm": config.norm}
        self.embedding = nn.Linear(letters, width)
        self.one_hot: Tensor
        self.register_buffer("one_hot", torch.eye(letters), persistent=False)
        self.positions: Positions | None = None
        if config.pos_enc:
            self.positions = make_positions(config.positions, width, input_len)  # type: ignore[assignment]
        self.encoder = nn.ModuleList(
            make_encoder_layer(config.layer, width, heads, 2 * width, **options) for _ in range(config.enc_layers)
        )
        self.rest = nn.Parameter(torch.zeros(1, 1, width)) if vary_len else None
        self.queries = nn.Parameter(torch.zeros(outputs, width))
        self.cross = attention_layer(width, heads, score=score, mechanism=config.mechanism, kind="cross")
        self.cross_norm = make_norm(width, norm=config.norm)
        self.self_attention = None
        if config.self_att:
            self.self_attention = attention_layer(width, heads, score=score, mechanism=config.mechanism)
        self.self_attention_norm = make_norm(width, norm=config.norm) if config.self_att else None
        self.output = nn.Linear(width, classes)
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize matrices with Glorot's uniform distribution, and queries, positions and biases with zero.

        With an initial value of zero, the norm of a trained query or position shows how much training changed it.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if isinstance(self.positions, LearnedPositions):
            nn.init.zeros_(self.positions.weight)

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    @property
    def input_positions(self) -> Positions | None:
        return self.positions

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64; `mask` (B, T), True before the end."""
        memory, mask = self.encode(inputs, mask)
        queries = self.queries.expand(len(inputs), -1, -1)
        states = self.cross_norm(queries + self.cross(queries, memory, memory, mask))
        if self.self_attention is not None and self.self_attention_norm is not None:
            states = self.self_attention_norm(states + self.self_attention(states, states, states))
        logits: Tensor = self.output(states)
        return logits

    def fast_gradient(self) -> QueryGradient | None:
        """Return a function for loss and gradients, or None if `fast.query_gradient` lacks the model."""
        layers = [module for module in self.modules() if isinstance(module, AttentionLayer)]
        supported = (
            fast.enabled()
            and type(self) is QueryModel
            and self.rest is None
            and isinstance(self.cross_norm, nn.LayerNorm)
            and (self.positions is None or type(self.positions) in (LearnedPositions, Sinusoidal))
            and all(type(layer) is EncoderLayer for layer in self.encoder)
            and all(layer.standard for layer in layers)
            and all(weight.requires_grad and weight.device.type == "cpu" for weight in self.parameters())
        )
        return QueryGradient(self, layers) if supported else None

    def encode(self, inputs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the memory (B, T, D) and its mask. With `rest`, the memory has one additional step."""
        # Index -1 after the end selects the last letter, which is masked.
        states = self.embedding(self.one_hot[inputs])
        if self.positions is not None:
            states = self.positions(states)
        for layer in self.encoder:
            states = layer(states, None if mask is None else mask.unsqueeze(1))
        if self.rest is not None:
            states = torch.cat([states, self.rest.expand(len(states), -1, -1)], dim=1)
            mask = None if mask is None else F.pad(mask, (0, 1), value=True)
        return states, mask
