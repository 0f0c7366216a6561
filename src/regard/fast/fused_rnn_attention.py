"""All target steps of a recurrent decoder as one operation, for an LSTM whose input includes the attention context.

Replaces the loop over `RecurrentDecoder.step` under autograd, with its `Attention`.
Gain: together with other fast paths, training Bahdanau's decoder, or Luong's decoder with input feeding, is 2.1
to 2.8 times as fast as in JoeyNMT (docs/dev/benchmarks.md, "Recurrent encoder-decoders"). The fast path is not
used for a GRU, custom scores, samples that are only padding, scheduled sampling, autocast, compiled code, while
attention is recorded or changed, or with `REGARD_REFERENCE=1` (see `RecurrentDecoder`).

Under autograd, most of the time is overhead of about a hundred small operations per step. This module runs the
steps in a loop without autograd and implements backpropagation through time explicitly. A gradient that is a
sum over all steps is computed by one matrix product at the end; that of the query of each step, in the loop.

Letters: T target steps, B samples, Ts source steps, D width of the state and of queries, M of the memory, N of
prepared keys, G = 4 D gates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.fast.onednn import onednn_matmul


class ProductAttention:
    """Attention with the score q · k multiplied by `scale`. `tensors` are the tensors with gradients: prepared
    keys (B, Ts, N), memory states (B, Ts, M), and the parameters of the score. `mask` (B, 1, Ts): True = may be
    attended, with at least one True per sample."""

    def __init__(self, mask: Tensor, tensors: Sequence[Tensor], scale: float = 1.0) -> None:
        self.tensors, self.scale = tensors, scale
        offsets = torch.zeros_like(mask, dtype=tensors[0].dtype)
        self.offsets = offsets.masked_fill_(~mask, torch.finfo(offsets.dtype).min / 2)

    def begin(self, count: int, tensors: Sequence[Tensor]) -> None:
        """Allocate buffers for `count` steps; `tensors` are those of the constructor, without autograd history."""
        self.prepared, self.states = tensors[:2]
        self.weights = self.offsets.new_empty(count, *self.offsets.shape)  # (T, B, 1, Ts)

    def context(self, time: int, query: Tensor) -> Tensor:
        """Return the context (B, M) for the query (B, D) at step `time`."""
        scores = self.score(time, query).add_(self.offsets)
        torch.softmax(scores, -1, out=self.weights[time])
        return torch.bmm(self.weights[time], self.states).squeeze(1)

    def score(self, time: int, query: Tensor) -> Tensor:
        """Return the scores (B, 1, Ts) for the query at step `time`."""
        return torch.bmm((query * self.scale).unsqueeze(1), self.prepared.mT)

    def begin_backward(self) -> None:
        self.to_scores = torch.empty_like(self.weights)
        self.to_contexts = self.states.new_empty(*self.weights.shape[:2], self.states.shape[2])

    def backward(self, time: int, to_context: Tensor) -> Tensor:
        """Return the gradient of the query (B, D) at step `time` for the gradient of its context (B, M)."""
        self.to_contexts[time] = to_context
        to_weights = torch.bmm(to_context.unsqueeze(1), self.states.mT)
        weights, to_scores = self.weights[time], self.to_scores[time]
        torch._softmax_backward_data(to_weights, weights, -1, weights.dtype, grad_input=to_scores)
        return self.score_backward(time, to_scores)

    def score_backward(self, time: int, to_scores: Tensor) -> Tensor:
        """Return the gradient of the query for the gradient of its scores (B, 1, Ts)."""
        return torch.bmm(to_scores, self.prepared).squeeze(1).mul_(self.scale)

    def finish(self, queries: Tensor) -> list[Tensor]:
        """Return the gradients of all tensors. `queries` (T, B, D): queries of all steps."""
        weights = self.weights.squeeze(2).permute(1, 2, 0)
        to_states = torch.bmm(weights, self.to_contexts.transpose(0, 1))
        to_prepared, *to_parameters = self.finish_score(queries)
        return [to_prepared, to_states, *to_parameters]

    def finish_score(self, queries: Tensor) -> list[Tensor]:
        to_scores = self.to_scores.squeeze(2).permute(1, 2, 0)
        return [torch.bmm(to_scores, queries.transpose(0, 1)).mul_(self.scale)]


class AdditiveAttention(ProductAttention):
    """Attention with the score v · tanh(W q + k), whose parameters are W (N, D) and v (1, N).

    The backward pass computes all pairs again, like `fast.additive`. tanh z is computed as 2 σ(2z) - 1, because
    PyTorch's sigmoid takes a sixth of the time of PyTorch's tanh. The term -1 is omitted, because it is the
    same for all keys: the softmax does not depend on a constant, and the gradient of a constant is zero.
    """

    def begin(self, count: int, tensors: Sequence[Tensor]) -> None:
        super().begin(count, tensors)
        self.project, self.energy = tensors[2:]
        self.keys, self.double_project = self.prepared * 2, self.project.t() * 2
        self.double_energy = self.energy[0] * 2
        self.queries = self.prepared.new_empty(count, len(self.prepared), self.prepared.shape[2])

    def score(self, time: int, query: Tensor) -> Tensor:
        torch.mm(query, self.double_project, out=self.queries[time])
        return (self._pairs(time) @ self.double_energy).unsqueeze(1)

    def _pairs(self, time: int) -> Tensor:
        """Return σ(2 (W q + k)), (B, Ts, N)."""
        return (self.keys + self.queries[time].unsqueeze(1)).sigmoid_()

    def begin_backward(self) -> None:
        super().begin_backward()
        self.to_energy, self.to_queries = torch.zeros_like(self.energy), torch.empty_like(self.queries)
        self.to_keys = torch.zeros_like(self.keys)

    def score_backward(self, time: int, to_scores: Tensor) -> Tensor:
        pairs = self._pairs(time)
        self.to_energy.addmm_(to_scores.view(1, -1), pairs.flatten(0, 1))
        slopes = torch.addcmul(pairs, pairs, pairs, value=-1)  # d σ = σ - σ²
        self.to_keys.addcmul_(slopes, to_scores.mT)
        to_projected = torch.bmm(to_scores, slopes).squeeze(1)
        return torch.mul(to_projected, self.energy, out=self.to_queries[time]).mul_(4) @ self.project

    def finish_score(self, queries: Tensor) -> list[Tensor]:
        to_project = onednn_matmul(self.to_queries.flatten(0, 1).t(), queries.flatten(0, 1))
        return [self.to_keys.mul_(self.energy).mul_(4), to_project, self.to_energy.mul_(2)]


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Connections between attention and the cell of a decoder (see `regard.models.recurrent`)."""

    context_to_cell: bool  # Whether the input of the cell includes the context for the previous state
    input_feeding: bool  # Whether the input of the cell includes the output of the previous step
    query_previous: bool  # Whether the query is the previous state instead of the current state


def run_decoder(
    wiring: Wiring,
    attention: ProductAttention,
    gates: Tensor,
    initial: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor],
    combine: Tensor | None,
) -> Tensor:
    """Return the outputs (B, T, D) for `gates` (B, T, G), the contribution of the embeddings to all gates.
    `initial`: state and cell before the first step, (B, D). `weights`: from context or previous output to gates
    (any, G), from state to gates (D, G), and the bias. `combine`: weight of the output layer (D, M + D)."""
    apply: Any = _FusedDecoder.apply
    outputs: Tensor = apply(wiring, attention, gates, *initial, *weights, combine, *attention.tensors)
    return outputs


class _FusedDecoder(torch.autograd.Function):
    """The loop over all steps, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        wiring: Wiring,
        attention: ProductAttention,
        gates: Tensor,
        state: Tensor,
        cell: Tensor,
        extra_weight: Tensor,
        state_weight: Tensor,
        bias: Tensor,
        combine: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        batch, count, width = *gates.shape[:2], state.shape[1]
        extra = len(extra_weight)
        weight = torch.cat([extra_weight, state_weight])
        doubled_weight = _double_candidates(weight, width)
        # (T, B, G): the loop converts the gates to activations in place.
        gates = _double_candidates((gates + bias).transpose(0, 1), width)
        inputs = gates.new_empty(count, batch, extra + width)
        cells = torch.cat([cell.unsqueeze(0), gates.new_empty(count, batch, width)])
        tanh_cells, states = torch.empty_like(cells[1:]), torch.empty_like(cells[1:])
        outputs = states if combine is None else torch.empty_like(states)
        joined = None if combine is None else gates.new_empty(count, batch, combine.shape[1])
        doubled_combine = None if combine is None else combine.t() * 2
        attention.begin(count, tensors)
        context, fed = None, torch.zeros_like(state)
        for time, (step_input, gate, new_state) in enumerate(zip(inputs, gates, states, strict=True)):
            step_input[:, extra:] = state
            if wiring.query_previous:
                context = attention.context(time, state)
            if wiring.context_to_cell or wiring.input_feeding:
                step_input[:, :extra] = context if wiring.context_to_cell else fed
            gate.add_(onednn_matmul(step_input, doubled_weight)).sigmoid_()
            entry, forget, candidate, out = gate.split(width, dim=1)
            candidate.mul_(2).sub_(1)
            new_cell = torch.mul(forget, cells[time], out=cells[time + 1]).addcmul_(entry, candidate)
            _tanh_of_half(torch.add(new_cell, new_cell, out=tanh_cells[time]))
            state = torch.mul(out, tanh_cells[time], out=new_state)
            if doubled_combine is not None and joined is not None:
                context = context if wiring.query_previous else attention.context(time, state)
                assert context is not None
                torch.cat([context, state], dim=1, out=joined[time])
                fed = _tanh_of_half(torch.mm(joined[time], doubled_combine, out=outputs[time]))
        ctx.wiring, ctx.attention, ctx.extra = wiring, attention, extra
        ctx.save_for_backward(gates, inputs, cells, tanh_cells, outputs, weight, combine, joined, states)
        return outputs.transpose(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gates, inputs, cells, tanh_cells, outputs, weight, combine, joined, states = ctx.saved_tensors
        wiring, attention, extra = ctx.wiring, ctx.attention, ctx.extra
        count, _, width = tanh_cells.shape
        grad = grad.transpose(0, 1)
        to_gates = torch.empty_like(gates)
        to_outputs = torch.empty_like(tanh_cells) if combine is not None else None
        to_state, to_cell = torch.zeros_like(tanh_cells[0]), torch.zeros_like(tanh_cells[0])
        to_fed: Tensor | None = None
        memory = 0 if combine is None else combine.shape[1] - width
        attention.begin_backward()
        for time in reversed(range(count)):
            to_output = grad[time] if to_fed is None else to_fed.add_(grad[time])
            to_context = None
            if combine is not None and to_outputs is not None:
                torch.ops.aten.tanh_backward.grad_input(to_output, outputs[time], grad_input=to_outputs[time])
                to_context, from_output = onednn_matmul(to_outputs[time], combine).split([memory, width], dim=1)
                to_state = to_state + from_output
                if not wiring.query_previous:
                    to_state += attention.backward(time, to_context)
            else:
                to_state = to_state + to_output
            to_cell = _cell_backward(to_state, to_cell, gates[time], to_gates[time], tanh_cells[time], cells[time])
            to_extra, to_state = onednn_matmul(to_gates[time], weight.t()).split([extra, width], dim=1)
            if wiring.input_feeding:
                to_fed = to_extra.contiguous()
            if wiring.context_to_cell:
                to_context = to_extra if to_context is None else to_context + to_extra
            if wiring.query_previous:
                to_state = to_state + attention.backward(time, to_context)
        flat = to_gates.flatten(0, 1)
        to_weight = onednn_matmul(inputs.flatten(0, 1).t(), flat)
        to_combine = None
        if to_outputs is not None and joined is not None:
            to_combine = onednn_matmul(to_outputs.flatten(0, 1).t(), joined.flatten(0, 1))
        queries = inputs[..., extra:] if wiring.query_previous else states
        return (
            *(None, None, to_gates.transpose(0, 1), to_state, to_cell),
            *(*to_weight.split([extra, width]), flat.sum(0), to_combine),
            *attention.finish(queries),
        )


def _tanh_of_half(doubled: Tensor) -> Tensor:
    """Convert 2z to tanh z = 2 σ(2z) - 1 in place. PyTorch's sigmoid takes a sixth of the time of its tanh."""
    return doubled.sigmoid_().mul_(2).sub_(1)


def _double_candidates(gates: Tensor, width: int) -> Tensor:
    """Return a copy of gates (..., G) with the candidate gates multiplied by 2 for `_tanh_of_half`."""
    gates = gates.clone(memory_format=torch.contiguous_format)
    gates[..., 2 * width : 3 * width].mul_(2)
    return gates


def _cell_backward(
    to_state: Tensor, to_cell: Tensor, gates: Tensor, to_gates: Tensor, tanh_cell: Tensor, previous: Tensor
) -> Tensor:
    """Write the gradient of a step's gates to `to_gates` (B, G), and return the gradient of the previous cell."""
    aten = torch.ops.aten
    entry, forget, candidate, out = gates.chunk(4, dim=1)
    to_entry, to_forget, to_candidate, to_out = to_gates.chunk(4, dim=1)
    to_cell = to_cell + aten.tanh_backward(to_state * out, tanh_cell)
    torch.mul(to_cell, candidate, out=to_entry)
    torch.mul(to_cell, previous, out=to_forget)
    torch.mul(to_state, tanh_cell, out=to_out)
    through_entry = to_cell * entry
    # d sigmoid = s (1 - s), d tanh = 1 - tanh².
    to_gates.copy_(aten.sigmoid_backward(to_gates, gates))
    to_candidate.copy_(aten.tanh_backward(through_entry, candidate))
    return to_cell * forget
