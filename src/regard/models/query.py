"""The query model of the primer: learned queries look up what each output step needs.

    memory  = encode(letters)                             B x T x D
    states  = norm(queries + attention(queries, memory))  B x To x D
    states  = norm(states + attention(states, states))    with `self_att`
    logits  = states W + b                                B x To x classes

The queries are the output's positional code: one learned vector for each output step. One dense layer of the
one-hot letters gives the keys, which are the values too. Letters: B batch, T input steps, To output steps,
D width (`hidden`).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import (
    STANDARD,
    LearnedPositions,
    Positions,
    Sinusoidal,
    attention_layer,
    check_encoder_layer,
    find_positions,
    find_score,
    make_encoder_layer,
    make_positions,
)
from regard.errors import InputError, check_range
from regard.models.answer import AnswerModel
from regard.models.config import ModelConfig

POSITIONS = ("learned", "sinusoidal")


@dataclass(frozen=True, kw_only=True)
class QueryModelConfig(ModelConfig):
    """The parts of a query model."""

    hidden: int = 64
    """Width of queries, keys and values."""
    enc_layers: int = 0
    """Encoder layers: self-attention and feed-forward over the input."""
    multihead: bool = False
    """Several heads in every attention layer, with projections; otherwise one head without."""
    heads: int = 4
    """Heads of each attention layer, where multihead is on; they divide hidden."""
    pos_enc: bool = False
    """Add a position to each input step."""
    positions: str = "learned"
    """Which positions, where pos_enc is on: learned, sinusoidal, or a class of your own as module:Class (see
    regard.attention.positions)."""
    layer: str = STANDARD
    """Encoder layers: standard, or a class of your own as module:Class (width, heads, inner width)."""
    score: str = "scaled_dot"
    """How well a query fits a key: dot, scaled_dot, general, concat or additive, or a class of your own as
    module:Class (see regard.attention.scores)."""
    self_att: bool = False
    """Let the output steps attend to one another before the last layer."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("hidden", self.hidden, 1, 65_536)
        check_range("enc_layers", self.enc_layers, 0, 100)
        check_range("heads", self.heads, 1, 65_536)
        find_score(self.score)
        find_positions(self.positions, POSITIONS)
        check_encoder_layer(self.layer)
        if self.multihead and self.hidden % self.heads:
            raise InputError(
                f"hidden {self.hidden} cannot be split into {self.heads} heads: choose a multiple of {self.heads}"
            )


class QueryModel(AnswerModel):
    """Learned queries attend to encoded letters; see the module's docstring for the equations.

    With `vary_len`, one learned vector joins the memory that the queries attend to, as key and value. A softmax
    only ever averages: without something constant to weigh against, "A" and "AA" give the same context, and
    sequences of unknown length cannot be counted.
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
        self.embedding = nn.Linear(letters, width)
        self.one_hot: Tensor
        self.register_buffer("one_hot", torch.eye(letters), persistent=False)
        self.positions = _positions(config, input_len) if config.pos_enc else None
        self.encoder = nn.ModuleList(
            make_encoder_layer(config.layer, width, heads, 2 * width, score=score)
            for _ in range(config.enc_layers)
        )
        self.rest = nn.Parameter(torch.zeros(1, 1, width)) if vary_len else None
        self.queries = nn.Parameter(torch.zeros(outputs, width))
        self.cross = attention_layer(width, heads, score=score)
        self.cross_norm = nn.LayerNorm(width)
        self.self_attention = attention_layer(width, heads, score=score) if config.self_att else None
        self.self_attention_norm = nn.LayerNorm(width) if config.self_att else None
        self.output = nn.Linear(width, classes)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draw matrices from Glorot's uniform distribution; start queries, positions and biases from zero.

        So a large query or position is one that training found a use for.
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
        """The dense layer of the one-hot letters."""
        return self.embedding

    @property
    def input_positions(self) -> Positions | None:
        """What is added to the input steps."""
        return self.positions

    @property
    def learned_positions(self) -> Tensor | None:
        """The vectors added to the input steps, (T, D)."""
        return self.positions.weight.detach() if isinstance(self.positions, LearnedPositions) else None

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64; `mask` (B, T), True before the end."""
        memory, mask = self.encode(inputs, mask)
        queries = self.queries.expand(len(inputs), -1, -1)
        states = self.cross_norm(queries + self.cross(queries, memory, memory, mask))
        if self.self_attention is not None and self.self_attention_norm is not None:
            states = self.self_attention_norm(states + self.self_attention(states, states, states))
        found: Tensor = self.output(states)
        return found

    def encode(self, inputs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the memory (B, T, D), with `rest` one step longer, and its mask."""
        # Past the end, index -1 picks the last letter: the mask keeps it from being attended.
        states = self.embedding(self.one_hot[inputs])
        if self.positions is not None:
            states = self.positions(states)
        for layer in self.encoder:
            states = layer(states, None if mask is None else mask.unsqueeze(1))
        if self.rest is not None:
            states = torch.cat([states, self.rest.expand(len(states), -1, -1)], dim=1)
            mask = None if mask is None else F.pad(mask, (0, 1), value=True)
        return states, mask


def _positions(config: QueryModelConfig, length: int) -> Positions:
    if config.positions == "learned":
        return LearnedPositions(length, config.hidden)
    if config.positions == "sinusoidal":
        return Sinusoidal(config.hidden)
    return make_positions(config.positions, config.hidden, length)
