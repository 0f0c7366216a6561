"""All target steps of a decoder that feeds what it attended to back to its cell, as one operation.

Step by step under autograd such a decoder spends most of its time on the account of some hundred small operations
a step. Here the steps run in a loop without it, and the way back through time is written out: what a step needs
from those after it is worked out step by step, and every gradient that is a sum over all steps is one product at
the end. `RecurrentDecoder` says what is computed, step by step, and the two are tested to agree.

Letters as in `decoder`; T target steps, B samples, N inner width of an additive score, G = 4 D gates of an LSTM.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention import product
from regard.models.looking import Looking


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the context goes, and which state asks for it (see `decoder`)."""

    cell: bool
    """Into the cell, with the context that the state before asks for."""
    feeds: bool
    """What the output layer made goes into the next step's cell."""
    previous: bool
    """The state before asks, or else the current one."""


def unroll(
    places: Places,
    looking: Looking,
    gates: Tensor,
    begin: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor],
    combine: Tensor | None,
) -> Tensor:
    """Return o (B, T, D) of the embeddings' part of all gates (B, T, G).

    `begin`: state and cell before the first step, (B, D). `weights`: what the gates make of the context, or of
    what is fed, (any, G), and of the state (D, G), and its bias. `combine`: the output layer's (D, M + D).
    """
    apply: Any = _Unrolled.apply
    found: Tensor = apply(places, looking, gates, *begin, *weights, combine, *looking.tensors)
    return found


class _Unrolled(torch.autograd.Function):
    """The loop over all steps, there and back."""

    @staticmethod
    def forward(
        ctx: Any,
        places: Places,
        looking: Looking,
        gates: Tensor,
        state: Tensor,
        cell: Tensor,
        of_extra: Tensor,
        of_state: Tensor,
        bias: Tensor,
        combine: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        batch, count, width = *gates.shape[:2], state.shape[1]
        extra = len(of_extra)
        weight = torch.cat([of_extra, of_state])
        steep = _doubled(weight, width)
        # (T, B, G): in the loop they become what they let through.
        gates = _doubled((gates + bias).transpose(0, 1), width)
        reads = gates.new_empty(count, batch, extra + width)
        cells = torch.cat([cell.unsqueeze(0), gates.new_empty(count, batch, width)])
        bent, states = torch.empty_like(cells[1:]), torch.empty_like(cells[1:])
        outputs = states if combine is None else torch.empty_like(states)
        joined = None if combine is None else gates.new_empty(count, batch, combine.shape[1])
        twice = None if combine is None else combine.t() * 2
        looking.begin(count, tensors)
        context, fed = None, torch.zeros_like(state)
        for time, (read, gate, now) in enumerate(zip(reads, gates, states, strict=True)):
            read[:, extra:] = state
            if places.previous:
                context = looking.look(time, state)
            if places.cell or places.feeds:
                read[:, :extra] = context if places.cell else fed
            gate.add_(product(read, steep)).sigmoid_()
            entry, forget, new, out = gate.split(width, dim=1)
            new.mul_(2).sub_(1)
            now_cell = torch.mul(forget, cells[time], out=cells[time + 1]).addcmul_(entry, new)
            _tanh(torch.add(now_cell, now_cell, out=bent[time]))
            state = torch.mul(out, bent[time], out=now)
            if twice is not None and joined is not None:
                context = context if places.previous else looking.look(time, state)
                assert context is not None
                torch.cat([context, state], dim=1, out=joined[time])
                fed = _tanh(torch.mm(joined[time], twice, out=outputs[time]))
        ctx.places, ctx.looking, ctx.extra = places, looking, extra
        ctx.save_for_backward(gates, reads, cells, bent, outputs, weight, combine, joined, states)
        return outputs.transpose(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gates, reads, cells, bent, outputs, weight, combine, joined, states = ctx.saved_tensors
        places, looking, extra = ctx.places, ctx.looking, ctx.extra
        count, _, width = bent.shape
        grad = grad.transpose(0, 1)
        to_gates, to_outputs = torch.empty_like(gates), torch.empty_like(bent) if combine is not None else None
        to_state, to_cell = torch.zeros_like(bent[0]), torch.zeros_like(bent[0])
        to_fed: Tensor | None = None
        memory = 0 if combine is None else combine.shape[1] - width
        looking.begin_back()
        for time in reversed(range(count)):
            to_output = grad[time] if to_fed is None else to_fed.add_(grad[time])
            to_context = None
            if combine is not None and to_outputs is not None:
                torch.ops.aten.tanh_backward.grad_input(to_output, outputs[time], grad_input=to_outputs[time])
                to_context, to_now = product(to_outputs[time], combine).split([memory, width], dim=1)
                to_state = to_state + to_now
                if not places.previous:
                    to_state += looking.back(time, to_context)
            else:
                to_state = to_state + to_output
            to_cell = _back_cell(to_state, to_cell, gates[time], to_gates[time], bent[time], cells[time])
            to_extra, to_state = product(to_gates[time], weight.t()).split([extra, width], dim=1)
            if places.feeds:
                to_fed = to_extra.contiguous()
            if places.cell:
                to_context = to_extra if to_context is None else to_context + to_extra
            if places.previous:
                to_state = to_state + looking.back(time, to_context)
        flat = to_gates.flatten(0, 1)
        to_weight = product(reads.flatten(0, 1).t(), flat)
        to_combine = None
        if to_outputs is not None and joined is not None:
            to_combine = product(to_outputs.flatten(0, 1).t(), joined.flatten(0, 1))
        asked = reads[..., extra:] if places.previous else states
        return (
            *(None, None, to_gates.transpose(0, 1), to_state, to_cell),
            *(*to_weight.split([extra, width]), flat.sum(0), to_combine),
            *looking.finish(asked),
        )


def _tanh(twice: Tensor) -> Tensor:
    """Turn 2z into tanh z = 2 σ(2z) - 1, in place: PyTorch's sigmoid takes a sixth of its tanh's time."""
    return twice.sigmoid_().mul_(2).sub_(1)


def _doubled(gates: Tensor, width: int) -> Tensor:
    """Return gates (..., G), or what makes them, with those doubled that a tanh comes after (see `_tanh`)."""
    gates = gates.clone(memory_format=torch.contiguous_format)
    gates[..., 2 * width : 3 * width].mul_(2)
    return gates


def _back_cell(
    to_state: Tensor, to_cell: Tensor, gates: Tensor, to_gates: Tensor, bent: Tensor, before: Tensor
) -> Tensor:
    """Write the gradient of a step's gates into `to_gates` (B, G), and return that of the cell before it."""
    aten = torch.ops.aten
    entry, forget, new, out = gates.chunk(4, dim=1)
    to_entry, to_forget, to_new, to_out = to_gates.chunk(4, dim=1)
    to_cell = to_cell + aten.tanh_backward(to_state * out, bent)
    torch.mul(to_cell, new, out=to_entry)
    torch.mul(to_cell, before, out=to_forget)
    torch.mul(to_state, bent, out=to_out)
    through = to_cell * entry
    # d sigmoid = s (1 - s), d tanh = 1 - tanh².
    to_gates.copy_(aten.sigmoid_backward(to_gates, gates))
    to_new.copy_(aten.tanh_backward(through, new))
    return to_cell * forget
