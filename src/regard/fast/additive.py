"""Additive scores `v · tanh(q + k)` without a tensor of all pairs.

Replaces `regard.attention.scores.pairwise_scores`.
Gain: a training step takes 1.1 to 1.7 times as long without it (docs/dev/benchmarks.md, "Fast paths"). A backward pass
over 8 x 512 x 512 pairs of width 256 takes less than 200 MiB of memory instead of 2,000 (tests/fast/test_additive.py).
The fast path is not used in compiled code, or with `REGARD_REFERENCE=1`. Second derivatives follow the plain equation.

A tensor of all pairs has `Tq Tk D` numbers. This module computes, uses and discards one block of pairs at a time, which
fits in the processor's cache. The backward pass computes the blocks again.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

BLOCK = 2**18  # Number of values in a block of pairs: 1 MiB in float32


def blockwise_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """Return `energy · tanh(q + k)` (..., Tq, Tk) for query (..., Tq, D), keys (..., Tk, D) and energy (D)."""
    lead = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2])
    query, keys = query.expand(*lead, *query.shape[-2:]), keys.expand(*lead, *keys.shape[-2:])
    apply: Any = _BlockwiseScores.apply
    count = math.prod(lead)  # 1 without leading dimensions
    flat = apply(query.reshape(count, *query.shape[-2:]), keys.reshape(count, *keys.shape[-2:]), energy)
    scores: Tensor = flat.view(*lead, query.shape[-2], keys.shape[-2])
    return scores


class _BlockwiseScores(torch.autograd.Function):
    """Scores for query (N, Tq, D), keys (N, Tk, D) and energy (D), one block of pairs at a time."""

    @staticmethod
    def forward(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        scores = query.new_empty(*query.shape[:2], keys.shape[1])
        for samples, rows in _blocks(query, keys):
            scores[samples, rows] = _tanh_of_pairs(query, keys, samples, rows) @ energy
        return scores

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        """Support `torch.func.vmap` by merging its batch into the sample dimension, unless `energy` is batched."""
        count = info.batch_size
        query, keys, energy = (
            part.expand(count, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(inputs, in_dims, strict=True)
        )
        if in_dims[2] is not None:
            pairs = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))
            return (pairs * energy[:, None, None, None]).sum(-1), 0
        apply: Any = _BlockwiseScores.apply
        scores: Tensor = apply(query.flatten(0, 1), keys.flatten(0, 1), inputs[2])
        return scores.unflatten(0, (count, -1)), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, energy = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives need differentiable operations
            pairs = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1))
            through_tanh = grad.unsqueeze(-1) * energy * (1 - pairs**2)
            return through_tanh.sum(2), through_tanh.sum(1), torch.einsum("nqk,nqkd->d", grad, pairs)
        # d tanh = 1 - tanh². The term 1 needs no pairs. The term tanh² is a matrix product with the gradient.
        to_query, to_keys = torch.zeros_like(query), torch.zeros_like(keys)
        to_energy = torch.zeros_like(energy)
        for samples, rows in _blocks(query, keys):
            pairs, block_grad = _tanh_of_pairs(query, keys, samples, rows), grad[samples, rows]
            to_energy += block_grad.reshape(1, -1).mm(pairs.flatten(0, 2))[0]
            pairs.mul_(pairs)  # several times faster than square_
            to_query[samples, rows] = torch.matmul(block_grad.unsqueeze(2), pairs).squeeze(2)
            to_keys[samples] += pairs.mul_(block_grad.unsqueeze(-1)).sum(1)
        to_query = (grad.sum(2, keepdim=True) - to_query) * energy
        to_keys = (grad.sum(1).unsqueeze(-1) - to_keys) * energy
        return to_query, to_keys, to_energy


def _tanh_of_pairs(query: Tensor, keys: Tensor, samples: slice, rows: slice) -> Tensor:
    """Return `tanh(q + k)` for a block: (samples, rows, Tk, D)."""
    pairs = query[samples, rows].unsqueeze(2) + keys[samples].unsqueeze(1)
    if pairs.device.type != "cpu" or pairs.dtype not in (torch.float32, torch.float64):
        return pairs.tanh_()
    # tanh z = 2 σ(2z) - 1. In half precision, this formula would lose digits near zero.
    return pairs.mul_(2).sigmoid_().mul_(2).sub_(1)


def _blocks(query: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield blocks that cover all pairs: rows of one sample, or several samples if the samples are small."""
    rows = max(1, BLOCK // max(1, keys.shape[1] * keys.shape[2]))
    samples = max(1, rows // max(1, query.shape[1]))
    for sample in range(0, len(query), samples):
        for row in range(0, query.shape[1], rows):
            yield slice(sample, sample + samples), slice(row, row + rows)
