"""The recurrent encoder-decoder, with a bidirectional encoder and a decoder that generates one token per step.

memory = encoder(embedding(source))            B x Ts x D
o      = decoder(embedding(target_in), memory) B x Tt x D      see `recurrent_decoder`
logits = o V + b                               B x Tt x vocabulary
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from regard.arguments import Limits, check_fields, public
from regard.attention.dropout import Dropout
from regard.attention.scores import INNER, Score, find_score, make_score
from regard.errors import InputError
from regard.models.base import ModelConfig
from regard.models.cells import Cell
from regard.models.recurrent_decoder import ContextTo, Memory, Query, RecurrentDecoder, RecurrentState, Start
from regard.models.recurrent_encoder import RecurrentEncoder, check_width
from regard.models.seq2seq import Seq2Seq

NO_SCORE = "none"


@public
@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """Options of a recurrent encoder-decoder."""

    hidden: Annotated[int, Limits(1, 65_536)] = 128
    """Width of the decoder's state, and also of the memory if enc_hidden is not given."""
    enc_hidden: int | None = None
    """Width of the memory; each direction of the encoder has half of this width. None: hidden. A width other
    than hidden needs a score that accepts two widths: general, concat or additive."""
    bidirectional: bool = True
    """Read the source forwards and backwards. Without this flag, the encoder reads only forwards, with the full
    width of the memory."""
    start: Start = "last"
    """Initial state of the decoder: computed from the encoder's last state, or zero."""
    embedding: Annotated[int, Limits(1, 65_536)] = 64
    """Width of the embeddings."""
    enc_layers: Annotated[int, Limits(1, 100)] = 1
    """Number of encoder layers."""
    cell: Cell = "lstm"
    """Recurrent cell of encoder and decoder."""
    score: str = "general"
    """Attention score: none, dot, scaled_dot, general, concat, additive, or your own class as module:Class (see
    regard.attention.scores)."""
    attention: str = "softmax"
    """Attention mechanism: a normalizer (softmax, softmax_one, sink, sigmoid, sparsemax, entmax, or topk:8), a
    score (as in --score, cosine, soft_capped, scalable), or both joined by a comma, or your own part as
    module:Class. See docs/reference/mechanisms.md."""
    score_width: Annotated[int, Limits(1, 65_536)] | None = None
    """Inner width of the scores concat and additive. None: hidden."""
    context: ContextTo = "output"
    """Use of the context: input of the decoder's cell (cell, Bahdanau), input of the output layer (output,
    Luong), or both."""
    query: Query | None = None
    """State of the decoder's cell that is used as the query: previous or current. None: current if context is
    output, otherwise previous."""
    input_feeding: bool = False
    """Feed the input of the output layer to the cell of the next step (Luong). Requires context output."""
    dropout: Annotated[float, Limits(0, 1, "high")] = 0.0
    """Dropout rate for embeddings, states between encoder layers, and the input of the vocabulary layer (at
    least 0 and less than 1)."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value out of range, or for incompatible values."""
        check_fields(self)
        flag = "hidden" if self.enc_hidden is None else "enc_hidden"
        check_width(self.memory_width, flag, bidirectional=self.bidirectional)
        if self.score != NO_SCORE:
            find_score(self.score)
        self.check_single_head("recurrent")
        if self.score == NO_SCORE and self.attention != ModelConfig.attention:
            raise InputError(
                f"attention {self.attention} does not fit score none, which means no attention: leave one out"
            )
        if self.score_width is not None and self.score not in INNER:
            raise InputError(
                f"score_width {self.score_width} does not fit: score {self.score} has no inner width; use "
                f"{' or '.join(INNER)}"
            )
        self.decoder(1, "meta")

    @property
    def memory_width(self) -> int:
        """Width of the encoder's states."""
        return self.hidden if self.enc_hidden is None else self.enc_hidden

    def _score(self) -> Score | None:
        if self.score == NO_SCORE:
            return None
        choice = self.mechanism.slots.get("score")
        if choice is not None:
            return choice.build_score(self.hidden, self.memory_width)
        inner_width = () if self.score_width is None else (self.score_width,)
        return make_score(self.score, self.hidden, self.memory_width, *inner_width)

    def decoder(self, width: int, device: str | None = None) -> RecurrentDecoder:
        """Return the decoder for embeddings of `width`. On the device `meta`, the decoder needs no memory."""
        with torch.device(device or "cpu"):
            return RecurrentDecoder(
                width,
                self.hidden,
                self.memory_width,
                cell=self.cell,
                score=self._score(),
                mechanism=self.mechanism.without("score"),
                context=self.context,
                query=self.query or ("current" if self.context == "output" else "previous"),
                input_feeding=self.input_feeding,
                start=self.start,
            )


@public
class RecurrentSeq2Seq(Seq2Seq):
    """Recurrent encoder-decoder (equations at the top of this file). The attention layer is `decoder.cross`.

    Sequences may have any length, and source and target always have separate embeddings, so `longest` and
    `shared` are ignored.

    >>> model = RecurrentSeq2Seq(RecurrentConfig(hidden=8), source_symbols=9, target_symbols=11)
    >>> source = torch.full((2, 5), 4)
    >>> model(source, source > 0, torch.full((2, 3), 4)).shape
    torch.Size([2, 3, 11])
    """

    config_class = RecurrentConfig

    def __init__(
        self,
        config: RecurrentConfig,
        *,
        source_symbols: int,
        target_symbols: int,
        longest: int | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__()
        del longest, shared
        self.source_embedding = nn.Embedding(source_symbols, config.embedding)
        self.target_embedding = nn.Embedding(target_symbols, config.embedding)
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            config.embedding,
            config.memory_width,
            layers=config.enc_layers,
            cell=config.cell,
            dropout=config.dropout,
            bidirectional=config.bidirectional,
        )
        self.decoder = config.decoder(config.embedding)
        self.output = nn.Linear(config.hidden, target_symbols)
        self.cross_layers = () if self.decoder.cross is None else ("decoder.cross",)

    @property
    def input_embedding(self) -> nn.Module:
        return self.source_embedding

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Return the memory of sources (B, Ts), with `source_mask` (B, Ts) True before the end."""
        states, last = self.encoder(self.dropout(self.source_embedding(source)), source_mask)
        return self.decoder.remember(states, last, source_mask)

    def read(self, target_in: Tensor, memory: Memory, forced: Tensor | None = None) -> Tensor:
        """Return the inputs of the vocabulary layer (B, Tt, D) for target_in (B, Tt); see `Seq2Seq.read`."""
        if forced is None or bool(forced[:, 1:].all()):
            outputs: Tensor = self.dropout(self.decoder(self._embed(target_in), memory))
            return outputs
        state, token = self.decoder.start(memory), target_in[:, :1]
        states: list[Tensor] = []
        for time in range(target_in.shape[1]):
            if time:
                predicted = self.logits(states[-1]).argmax(-1)
                token = torch.where(forced[:, time : time + 1], target_in[:, time : time + 1], predicted)
            output, state = self.decoder.step(self._embed(token), state)
            states.append(self.dropout(output))
        return torch.cat(states, dim=1)

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        return self.output.weight, self.output.bias

    def start(self, memory: Memory) -> RecurrentState:
        """Return the state before the first step."""
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Append one token (B, K) to each hypothesis. Returns inputs of the vocabulary layer (B, K, D) and the
        next state."""
        output, state = self.decoder.step(self._embed(tokens), state)
        return self.dropout(output), state

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.target_embedding(tokens))
        return embedded
