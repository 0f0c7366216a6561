"""All target steps of a recurrent decoder as one operation, for an LSTM whose input includes the attention
context.

Replaces the loop over `RecurrentDecoder.step` under autograd.
Gain: together with other fast paths, training Bahdanau's decoder, or Luong's decoder with input feeding, is 2.1
to 2.8 times as fast as in JoeyNMT (docs/dev/benchmarks.md, "Recurrent encoder-decoders"). The fast path is not
used for a GRU, custom scores, samples that are only padding, scheduled sampling, autocast,
  compiled code, while attention is recorded or changed, or with `REGARD_REFERENCE=1` (see `RecurrentDecoder`).

Under autograd, most of the time is overhead of about a hundred small operations per step. This module runs the
steps in a loop without autograd and implements backpropagation through time explicitly. A gradient that is a
sum over all steps is computed by one matrix product at the end.

Letters: T target steps, B samples, D width of the state, M of the memory, G = 4 D gates.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.fast.onednn import onednn_matmul
from regard.fast.step_attention import ProductAttention


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Connections between attention and the cell of a decoder (see `models.recurrent_decoder`)."""

    context_to_cell: bool
    """Whether the input of the cell includes the context for the previous state."""
    input_feeding: bool
    """Whether the input of the cell includes the output of the previous step."""
    query_previous: bool
    """Whether the query is the previous state instead of the current state."""


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
    (any, G), from state to gates (D, G), and the bias. `combine`: weight of the output layer (D, M + D).
    """
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
            to_cell = _cell_backward(
                to_state, to_cell, gates[time], to_gates[time], tanh_cells[time], cells[time]
            )
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
