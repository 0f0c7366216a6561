"""The energy of additive scores, `v · tanh(q + k)` for every pair, without a tensor of all pairs.

Written out, all pairs take `Tq Tk D` numbers, several times over, and reading and writing them is most of the
time. Here a block of pairs that fits the processor's cache is computed, used and forgotten, in the forward pass
and again in the backward pass. `written_out` is the same in one line: it explains, and it serves where blocks
cannot: while compiling, and for gradients of gradients.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

BLOCK = 2**18
"""Numbers in a block of pairs: 1 MiB in float32."""


def additive_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """Return `energy · tanh(q + k)`, (..., Tq, Tk), of query (..., Tq, D), keys (..., Tk, D), energy (D)."""
    energy = energy.to(query.dtype)  # under autocast the projections are narrower than the weights
    if torch.compiler.is_compiling():
        return written_out(query, keys, energy)
    lead = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2])
    query, keys = query.expand(*lead, *query.shape[-2:]), keys.expand(*lead, *keys.shape[-2:])
    apply: Any = _Energy.apply
    flat = apply(query.flatten(0, -3), keys.flatten(0, -3), energy)
    found: Tensor = flat.view(*lead, query.shape[-2], keys.shape[-2])
    return found


def written_out(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """Compute `additive_scores` from its equation, all pairs at once."""
    return torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)) @ energy


class _Energy(torch.autograd.Function):
    """Blocks of pairs for query (N, Tq, D), keys (N, Tk, D) and energy (D)."""

    @staticmethod
    def forward(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        scores = query.new_empty(*query.shape[:2], keys.shape[1])
        for samples, rows in _blocks(query, keys):
            scores[samples, rows] = _tanh(query, keys, samples, rows) @ energy
        return scores

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[Tensor, int]:
        """Serve `torch.func.vmap`: its batch joins the samples, unless every part has an energy of its own."""
        count = info.batch_size
        query, keys, energy = (
            each.expand(count, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(given, in_dims, strict=True)
        )
        if in_dims[2] is not None:
            pairs = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))
            return (pairs * energy[:, None, None, None]).sum(-1), 0
        apply: Any = _Energy.apply
        scores: Tensor = apply(query.flatten(0, 1), keys.flatten(0, 1), given[2])
        return scores.unflatten(0, (count, -1)), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, energy = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, which needs every step to be differentiable
            pairs = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1))
            before = grad.unsqueeze(-1) * energy * (1 - pairs**2)
            return before.sum(2), before.sum(1), torch.einsum("nqk,nqkd->d", grad, pairs)
        # d tanh = 1 - tanh²: what the 1 gives needs no pairs; what tanh² gives is a product with the gradient.
        to_query, to_keys = torch.zeros_like(query), torch.zeros_like(keys)
        to_energy = torch.zeros_like(energy)
        for samples, rows in _blocks(query, keys):
            pairs, some = _tanh(query, keys, samples, rows), grad[samples, rows]
            to_energy += some.reshape(1, -1).mm(pairs.flatten(0, 2))[0]
            pairs.mul_(pairs)  # several times faster than square_
            to_query[samples, rows] = torch.matmul(some.unsqueeze(2), pairs).squeeze(2)
            to_keys[samples] += pairs.mul_(some.unsqueeze(-1)).sum(1)
        to_query = (grad.sum(2, keepdim=True) - to_query) * energy
        to_keys = (grad.sum(1).unsqueeze(-1) - to_keys) * energy
        return to_query, to_keys, to_energy


def _tanh(query: Tensor, keys: Tensor, samples: slice, rows: slice) -> Tensor:
    """Return `tanh(q + k)` of a block: (samples, rows, Tk, D).

    On a CPU by `tanh z = 2 σ(2z) - 1`: PyTorch's sigmoid takes a sixth of the time of its tanh. In half precision
    that would cost digits near zero.
    """
    pairs = query[samples, rows].unsqueeze(2) + keys[samples].unsqueeze(1)
    if pairs.device.type != "cpu" or pairs.dtype not in (torch.float32, torch.float64):
        return pairs.tanh_()
    return pairs.mul_(2).sigmoid_().mul_(2).sub_(1)


def _blocks(query: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Cut all pairs into blocks: some rows of a sample, or some whole samples where these are small."""
    rows = max(1, BLOCK // max(1, keys.shape[1] * keys.shape[2]))
    samples = max(1, rows // max(1, query.shape[1]))
    for sample in range(0, len(query), samples):
        for row in range(0, query.shape[1], rows):
            yield slice(sample, sample + samples), slice(row, row + rows)
