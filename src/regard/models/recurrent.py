"""The recurrent encoder-decoder, with a bidirectional encoder and a decoder that generates one token per step.

memory = encoder(embedding(source))            B x Ts x D
o      = decoder(embedding(target_in), memory) B x Tt x D      see `RecurrentDecoder`
logits = o V + b                               B x Tt x vocabulary

Letters: B sources, K hypotheses per source, T steps, E width of embeddings, D of the state, G of the gates.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard import fast
from regard.arguments import Limits, check_fields, public
from regard.attention.blocks import Dropout
from regard.attention.layer import Attention
from regard.attention.mechanism import Mechanism
from regard.attention.scores import INNER, Additive, Concat, Dot, General, ScaledDot, Score, find_score, make_score
from regard.errors import InputError, check_range
from regard.fast.fused_rnn_attention import AdditiveAttention, ProductAttention, Wiring, run_decoder
from regard.models.base import ModelConfig, Seq2Seq

Cell = Literal["lstm", "gru"]
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new state and cell of an LSTM for gates (..., 4 D) in the order input, forget, cell, output."""
    entry, forget, candidate, out = gates.chunk(4, dim=-1)
    cell = forget.sigmoid() * cell + entry.sigmoid() * candidate.tanh()
    return out.sigmoid() * cell.tanh(), cell


def gru(gates: Tensor, recurrent: Tensor, state: Tensor) -> Tensor:
    """Return the new state of a GRU for gates (..., 3 D) of input and state: reset, update, candidate."""
    reset, update, candidate = gates.chunk(3, dim=-1)
    state_reset, state_update, state_candidate = recurrent.chunk(3, dim=-1)
    keep = (update + state_update).sigmoid()
    candidate = (candidate + (reset + state_reset).sigmoid() * state_candidate).tanh()
    return candidate + keep * (state - candidate)


class CellWeights(NamedTuple):
    """Parameters of a cell, split once for many steps. G is 4 D for an LSTM and 3 D for a GRU."""

    embedding: Tensor
    """(G, E)"""
    extra: Tensor
    """(any, G), weight of the inputs of the cell other than the embedding."""
    state: Tensor
    """(D, G)"""
    input_bias: Tensor
    state_bias: Tensor

    @classmethod
    def split(cls, rnn: nn.LSTM | nn.GRU, width: int) -> "CellWeights":
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        inputs, state, input_bias, state_bias = (rnn.get_parameter(name) for name in names)
        embedding, extra = inputs.split([width, inputs.shape[1] - width], dim=1)
        return cls(embedding, extra.t(), state.t(), input_bias, state_bias)

    def gates(self, embedded: Tensor) -> Tensor:
        """Return the contribution (B, T, G) of the embeddings (B, T, E) to the gates of all steps, in one product."""
        return nn.functional.linear(embedded, self.embedding, self.input_bias)

    def advance(self, gates: Tensor, extra: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the next state for `gates` (B, K, G) from the embeddings and other inputs `extra` (B, K, any)."""
        shape, flat = state[0].shape, gates.flatten(0, 1)
        if extra is not None:
            flat = torch.addmm(flat, extra.flatten(0, 1), self.extra)
        recurrent = torch.addmm(self.state_bias, state[0].flatten(0, 1), self.state)
        if len(state) == 1:
            return (gru(flat, recurrent, state[0].flatten(0, 1)).view(shape),)
        new_state, cell = lstm(flat + recurrent, state[1].flatten(0, 1))
        return new_state.view(shape), cell.view(shape)


def check_width(width: int, name: str = "hidden", *, bidirectional: bool = True) -> None:
    """Raise `InputError` for a width that is out of range, or odd with two directions. `name`: flag of the width."""
    check_range(name, width, 2 if bidirectional else 1, 65_536)
    if bidirectional and width % 2:
        raise InputError(f"{name} {width} is odd: each of the encoder's two directions needs half of the width")


@public
class RecurrentEncoder(nn.Module):
    """`layers` recurrent layers, LSTM or GRU, with `dropout` between them.

    `width`: width of the states. If `bidirectional`, each direction has half of the width. Raises `InputError`
    for an odd width with two directions.

    >>> states, last = RecurrentEncoder(5, 8)(torch.zeros(2, 6, 5))
    >>> states.shape, last.shape
    (torch.Size([2, 6, 8]), torch.Size([2, 8]))
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        layers: int = 1,
        cell: Cell = "lstm",
        dropout: float = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_width(width, bidirectional=bidirectional)
        rnn = CELLS[cell]
        self.dropout = Dropout(dropout)
        widths = [input_width, *[width] * (layers - 1)]
        self.direction_width = width // 2 if bidirectional else width
        self.forwards = nn.ModuleList(rnn(width, self.direction_width, batch_first=True) for width in widths)
        self.backwards = nn.ModuleList(
            rnn(width, self.direction_width, batch_first=True) for width in widths if bidirectional
        )

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, D) for inputs (B, T, any), with zeros at padding, and the last states (B, D).

        `mask` (B, T): True before the end; None if every sequence has T steps. The last state of the backward
        direction is the state at the first step.
        """
        batch, time = states.shape[:2]
        length = torch.full((batch, 1), time, device=states.device) if mask is None else mask.sum(1, keepdim=True)
        # Each sequence is reversed before padding, so that padding never precedes a step in either direction.
        # The result equals that of `pack_padded_sequence` up to rounding. On a CPU, PyTorch processes packed
        # sequences step by step, and padded sequences in a fused kernel, which is 3 to 7 times faster for the
        # LSTM (docs/dev/benchmarks.md).
        reverse = reversed_steps(length, time)
        for layer, forwards in enumerate(self.forwards):
            inputs = self.dropout(states) if layer else states
            states, _ = forwards(inputs)
            if self.backwards:
                backward_states, _ = self.backwards[layer](_take_steps(inputs, reverse))
                states = torch.cat([states, _take_steps(backward_states, reverse)], dim=-1)
            if mask is not None:
                states = states * mask.unsqueeze(-1)
        last = _take_steps(states[..., : self.direction_width], (length - 1).clamp(min=0)).squeeze(1)
        return states, torch.cat([last, states[:, 0, self.direction_width :]], dim=-1)


def reversed_steps(length: Tensor, time: int) -> Tensor:
    """Return the step indices (B, T) of sequences of `length` (B, 1) in reverse order, then of the padding."""
    steps = torch.arange(time, device=length.device)
    return torch.where(steps < length, length - 1 - steps, steps)


def _take_steps(states: Tensor, steps: Tensor) -> Tensor:
    """Return states (B, S, D) at the steps (B, S) of states (B, T, D)."""
    return states.gather(1, steps.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


# The recurrent decoder with attention. The context is an input of the cell, of the output layer, or of both.
#
# Letters: y target tokens, e embeddings of y, s states of the cell, h states of the memory, c contexts, o inputs
# of the output layer. At step t:
#
#     weights  = softmax(score(q, h))        c_t = weights h
#
# |context | query q          | cell                          | output                   | paper                |
# |-------- | ---------------- | ----------------------------- | ------------------------ | -------------------- |
# |`cell`  | s_{t-1}          | s_t = cell([e_t; c_t], s_t-1) | o_t = s_t                | Bahdanau 2015, A.1.2 |
# |`output` | s_t (or s_{t-1}) | s_t = cell(e_t, s_t-1)       | o_t = tanh(W [c_t; s_t]) | Luong 2015, eq. 5    |
# |`both`  | s_{t-1}          | s_t = cell([e_t; c_t], s_t-1) | o_t = tanh(W [c_t; s_t]) | Bahdanau 2015, A.2.2 |
# |(none)  |                  | s_t = cell(e_t, s_t-1)        | o_t = s_t                | Sutskever 2014       |
#
#     logits_t = V o_t + b        s_0 = tanh(W_0 last state of the encoder), or zero
#
# With input feeding (Luong 2015, section 3.3; only for `output`), the input of the cell is [e_t; o_{t-1}]. The
# models in the papers differ as follows. Bahdanau's output layer is a maxout layer that also has the previous
# token as input. Luong's cells are stacked. Here, the initial cell of the LSTM is computed by a separate matrix,
# like the initial state.
#
# If the input of the cell does not depend on attention, all steps of the cell run in one fused kernel, and
# attention is one call. In the other case, `fast.fused_rnn_attention` runs all steps of an LSTM as one operation,
# unless attention is recorded or changed.

ContextTo = Literal["cell", "output", "both"]
Query = Literal["previous", "current"]
Start = Literal["last", "zero"]


class Memory(NamedTuple):
    """Encoder states to which the decoder attends."""

    states: Tensor
    """(B, Ts, M), values."""
    prepared: Tensor
    """(B, Ts, any), keys, prepared by the score."""
    mask: Tensor
    """(B, 1, Ts) bool, True before the end."""
    last: Tensor
    """(B, M), last state of the encoder."""


class RecurrentState(NamedTuple):
    """State between two decoding steps, for B sources with K hypotheses each."""

    cell: tuple[Tensor, ...]
    """State of a GRU, or state and cell of an LSTM: (B, K, D) each."""
    fed: Tensor | None
    """(B, K, D), last output, for input feeding."""
    memory: Memory
    time: int = 0
    """Number of decoded steps."""

    def choose(self, hypotheses: Tensor) -> "RecurrentState":
        """Select hypotheses of each source by their indices (B, K') int64."""

        def pick(states: Tensor) -> Tensor:
            return states.gather(1, hypotheses.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

        fed = None if self.fed is None else pick(self.fed)
        return RecurrentState(tuple(map(pick, self.cell)), fed, self.memory, self.time)

    def keep(self, sources: Tensor) -> "RecurrentState":
        """Select sources by their indices (B',) int64."""
        fed = None if self.fed is None else self.fed[sources]
        memory = Memory(*(part[sources] for part in self.memory))
        return RecurrentState(tuple(part[sources] for part in self.cell), fed, memory, self.time)


class RecurrentDecoder(nn.Module):
    """Recurrent decoder from embeddings to the inputs of the output layer (equations at the top of this file).

    `score`: score of the states of the cell (`width`) as queries and the states of the memory (`memory_width`)
    as keys; None for no attention. `mechanism`: parts of the attention layer, such as a normalizer. Raises
    `InputError` if `context`, `query` and `input_feeding` are incompatible.
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        memory_width: int,
        *,
        cell: Cell = "lstm",
        score: Score | None = None,
        mechanism: Mechanism | None = None,
        context: ContextTo = "output",
        query: Query = "current",
        input_feeding: bool = False,
        start: Start = "last",
    ) -> None:
        super().__init__()
        if context != "output" and query == "current" and score is not None:
            raise InputError(
                f"query current does not fit context {context}: the current state is computed from the context; "
                f"use query previous, or context output"
            )
        if input_feeding and (context != "output" or score is None):
            raise InputError(
                "input_feeding needs attention with context output: it feeds back the input of the output layer"
            )
        self.context = context if score is not None else None
        self.query, self.input_feeding = query, input_feeding
        self.cross = None if score is None else Attention(score, mechanism=mechanism, kind="cross")
        extra = width if input_feeding else memory_width if context != "output" and score is not None else 0
        self.rnn = CELLS[cell](input_width + extra, width, batch_first=True)
        parts = 2 if cell == "lstm" else 1
        self.bridge = nn.Linear(memory_width, width * parts) if start == "last" else None
        self.zeros: Tensor
        self.register_buffer("zeros", torch.zeros(width * parts), persistent=False)
        joins = self.context in ("output", "both")
        self.combine = nn.Linear(memory_width + width, width, bias=False) if joins else None

    @property
    def stepwise(self) -> bool:
        """Whether the input of the cell depends on attention, so that the steps must run one after another."""
        return self.input_feeding or self.context in ("cell", "both")

    def remember(self, states: Tensor, last: Tensor, mask: Tensor) -> Memory:
        """Return the memory of encoder states (B, Ts, M) with mask (B, Ts) and last states (B, M)."""
        prepared = states if self.cross is None else self.cross.score.prepare(states)
        return Memory(states, prepared, mask.unsqueeze(1), last)

    def start(self, memory: Memory) -> RecurrentState:
        """Return the state before the first step, with one hypothesis per source."""
        if self.bridge is None:
            initial = self.zeros.expand(len(memory.last), 1, -1)
        else:
            initial = torch.tanh(self.bridge(memory.last)).unsqueeze(1)
        cell = initial.split(self.rnn.hidden_size, dim=-1)
        return RecurrentState(cell, torch.zeros_like(cell[0]) if self.input_feeding else None, memory)

    def forward(self, embedded: Tensor, memory: Memory) -> Tensor:
        """Return o (B, Tt, D) for all embedded target steps (B, Tt, E)."""
        state = self.start(memory)
        if self.stepwise:
            if (fused := self._run_fused(embedded, state)) is not None:
                return fused
            outputs, weights = [], CellWeights.split(self.rnn, embedded.shape[-1])
            # `split` is used instead of slices, because the gradient of each slice would be as large as the whole
            # tensor.
            for gates in weights.gates(embedded).split(1, dim=1):
                output, state = self._advance(gates, state, weights)
                outputs.append(output)
            return torch.cat(outputs, dim=1)
        initial = tuple(part.transpose(0, 1).contiguous() for part in state.cell)
        states: Tensor = self.rnn(embedded, initial if len(initial) == 2 else initial[0])[0]
        if self.cross is None:
            return states
        queries = states
        if self.query == "previous":
            queries = torch.cat([state.cell[0], states[:, :-1]], dim=1)
        return self._join(self._context(queries, memory), states)

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Run one step with embeddings (B, K, E). Returns o (B, K, D) and the next state."""
        weights = CellWeights.split(self.rnn, embedded.shape[-1])
        return self._advance(weights.gates(embedded), state, weights)

    def _run_fused(self, embedded: Tensor, state: RecurrentState) -> Tensor | None:
        """Run all steps in one operation. Returns None if the fused operation does not support this decoder."""
        memory, cross = state.memory, self.cross
        eager = not torch.is_autocast_enabled(embedded.device.type) and not torch.compiler.is_compiling()
        if not eager or not fast.enabled() or cross is None or cross.hook is not None or len(state.cell) != 2:
            return None
        attention = None if cross.normalizer is not None else _step_attention(cross.score, memory)
        if attention is None:
            return None
        weights = CellWeights.split(self.rnn, embedded.shape[-1])
        wiring = Wiring(
            context_to_cell=self.context in ("cell", "both"),
            input_feeding=self.input_feeding,
            query_previous=self.query == "previous",
        )
        initial = (state.cell[0].squeeze(1), state.cell[1].squeeze(1))
        gate_weights = (weights.extra, weights.state, weights.state_bias)
        combine = None if self.combine is None else self.combine.weight
        return run_decoder(wiring, attention, weights.gates(embedded), initial, gate_weights, combine)

    def _advance(self, gates: Tensor, state: RecurrentState, weights: CellWeights) -> tuple[Tensor, RecurrentState]:
        """Run one step with the contribution (B, K, any) of the embeddings to the gates."""
        previous, extra = state.cell[0], state.fed
        context = None
        if self.query == "previous" and self.cross is not None:
            context = self._context(previous, state.memory, state.time)
        if self.context in ("cell", "both"):
            extra = context
        cell = weights.advance(gates, extra, state.cell)
        output = cell[0]
        if self.context in ("output", "both"):
            context = self._context(output, state.memory, state.time) if context is None else context
            output = self._join(context, output)
        fed = output if self.input_feeding else None
        return output, RecurrentState(cell, fed, state.memory, state.time + 1)

    def _context(self, queries: Tensor, memory: Memory, step: int | None = None) -> Tensor:
        assert self.cross is not None
        context: Tensor = self.cross(queries, memory.prepared, memory.states, memory.mask, prepared=True, step=step)
        return context

    def _join(self, context: Tensor, states: Tensor) -> Tensor:
        assert self.combine is not None
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1)))


def _step_attention(score: Score, memory: Memory) -> ProductAttention | None:
    """Return the fast attention for a score, or None if the score is not supported or a sample is only padding."""
    states = (memory.prepared, memory.states)
    if type(score) in (Dot, ScaledDot, General):
        attention = ProductAttention(memory.mask, states, score.scale(score.width))
    elif type(score) is Additive:
        attention = AdditiveAttention(memory.mask, (*states, score.query.weight, score.energy.weight))
    elif type(score) is Concat:
        query_weight = score.both.weight[:, : score.width]
        attention = AdditiveAttention(memory.mask, (*states, query_weight, score.energy.weight))
    else:
        return None
    return attention if bool(memory.mask.any(-1).all()) else None


NO_SCORE = "none"


@public
@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """Options of a recurrent encoder-decoder."""

    hidden: Annotated[int, Limits(1, 65_536)] = 128
    """Width of the decoder's state, and also of the memory if enc_hidden is not given."""
    enc_hidden: int | None = None
    """Width of the memory; each direction of the encoder has half of this width. Default: hidden. A width other
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
    """Inner width of the scores concat and additive. Default: hidden."""
    context: ContextTo = "output"
    """Use of the context: input of the decoder's cell (cell, Bahdanau), input of the output layer (output,
    Luong), or both."""
    query: Query | None = None
    """State of the decoder's cell that is used as the query: previous or current. Default: current if context is
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
        if (choice := self.mechanism.slots.get("score")) is not None:
            score: Score = choice.make(self.hidden, self.memory_width)
            return score
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

    Sequences may have any length, and source and target separate embeddings: `longest` and `shared` are ignored.

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
