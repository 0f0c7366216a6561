"""The recurrent decoder with attention. The context is an input of the cell, of the output layer, or of both.

Letters: y target tokens, e embeddings of y, s states of the cell, h states of the memory, c contexts, o inputs
of the output layer. At step t:

    weights  = softmax(score(q, h))        c_t = weights h

| context  | query q          | cell                          | output                   | paper                |
| -------- | ---------------- | ----------------------------- | ------------------------ | -------------------- |
| `cell`   | s_{t-1}          | s_t = cell([e_t; c_t], s_t-1) | o_t = s_t                | Bahdanau 2015, A.1.2 |
| `output` | s_t (or s_{t-1}) | s_t = cell(e_t, s_t-1)        | o_t = tanh(W [c_t; s_t]) | Luong 2015, eq. 5    |
| `both`   | s_{t-1}          | s_t = cell([e_t; c_t], s_t-1) | o_t = tanh(W [c_t; s_t]) | Bahdanau 2015, A.2.2 |
| (none)   |                  | s_t = cell(e_t, s_t-1)        | o_t = s_t                | Sutskever 2014       |

    logits_t = V o_t + b        s_0 = tanh(W_0 last state of the encoder), or zero

With input feeding (Luong 2015, section 3.3; only for `output`), the input of the cell is [e_t; o_{t-1}]. The
models in the papers differ as follows. Bahdanau's output layer is a maxout layer that also has the previous
token as input. Luong's cells are stacked. Here, the initial cell of the LSTM is computed by a separate matrix,
like the initial state.

If the input of the cell does not depend on attention, all steps of the cell run in one fused kernel, and
attention is one call. In the other case, `fast.fused_rnn_attention` runs all steps of an LSTM as one operation,
unless attention is recorded or changed.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard import fast
from regard.attention.mechanism import Mechanism
from regard.attention.scores import Additive, Concat, Dot, General, ScaledDot, Score
from regard.attention.single import Attention
from regard.errors import InputError
from regard.fast.fused_rnn_attention import Wiring, run_decoder
from regard.fast.step_attention import AdditiveAttention, ProductAttention
from regard.models.cells import CELLS, Cell, CellWeights

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
            outputs = self._run_fused(embedded, state)
            return self._run_steps(embedded, state) if outputs is None else outputs
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

    def _run_steps(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        """Run all steps one after another."""
        outputs, weights = [], CellWeights.split(self.rnn, embedded.shape[-1])
        # `split` is used instead of slices, because the gradient of each slice would be as large as the whole
        # tensor.
        for gates in weights.gates(embedded).split(1, dim=1):
            output, state = self._advance(gates, state, weights)
            outputs.append(output)
        return torch.cat(outputs, dim=1)

    def _advance(
        self, gates: Tensor, state: RecurrentState, weights: CellWeights
    ) -> tuple[Tensor, RecurrentState]:
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
        context: Tensor = self.cross(
            queries, memory.prepared, memory.states, memory.mask, prepared=True, step=step
        )
        return context

    def _join(self, context: Tensor, states: Tensor) -> Tensor:
        assert self.combine is not None
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1)))


def _step_attention(score: Score, memory: Memory) -> ProductAttention | None:
    """Return the fast attention for a score, or None if the score is not supported or a sample is only
    padding."""
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
