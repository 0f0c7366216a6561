"""Attention of one query per sample at each step, with an explicit gradient, for `fused_rnn_attention`.

Replaces `Attention` in a step of `RecurrentDecoder`, and the backward pass of autograd.
Gain and conditions: see `fused_rnn_attention`.

The gradient of the query of each step is computed in the backward loop over steps. The gradients of the memory
and of the score parameters are sums over all steps, and are computed at the end.

Letters: T target steps, B samples, Ts source steps, D width of queries, M of the memory, N of prepared keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.fast.onednn import onednn_matmul


class ProductAttention:
    """Attention with the score q · k multiplied by `scale`.

    `tensors` are the tensors with gradients: prepared keys (B, Ts, N), memory states (B, Ts, M), and the
    parameters of the score. `mask` (B, 1, Ts): True = may be attended, with at least one True per sample.
    """

    def __init__(self, mask: Tensor, tensors: Sequence[Tensor], scale: float = 1.0) -> None:
        self.tensors, self.scale = tensors, scale
        offsets = torch.zeros_like(mask, dtype=tensors[0].dtype)
        self.offsets = offsets.masked_fill_(~mask, torch.finfo(offsets.dtype).min / 2)

    def begin(self, count: int, tensors: Sequence[Tensor]) -> None:
        """Allocate buffers for `count` steps; `tensors` are those of the constructor, without autograd
        history."""
        self.prepared, self.states = tensors[:2]
        self.weights = self.offsets.new_empty(count, *self.offsets.shape)  # (T, B, 1, Ts)

    def context(self, time: int, query: Tensor) -> Tensor:
        """Return the context (B, M) for the query (B, D) at step `time`."""
        scores = self.score(time, query).add_(self.offsets)
        torch.softmax(scores, -1, out=self.weights[time])
        return torch.bmm(self.weights[time], self.states).squeeze(1)

    def score(self, time: int, query: Tensor) -> Tensor:
        """Return the scores (B, 1, Ts) for the query at step `time`."""
        del time
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
        del time
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
        """Return the scores (B, 1, Ts) for the query at step `time`, up to a constant."""
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
        """Return the gradient of the query for the gradient of its scores (B, 1, Ts)."""
        pairs = self._pairs(time)
        self.to_energy.addmm_(to_scores.view(1, -1), pairs.flatten(0, 1))
        slopes = torch.addcmul(pairs, pairs, pairs, value=-1)  # d σ = σ - σ²
        self.to_keys.addcmul_(slopes, to_scores.mT)
        to_projected = torch.bmm(to_scores, slopes).squeeze(1)
        return torch.mul(to_projected, self.energy, out=self.to_queries[time]).mul_(4) @ self.project

    def finish_score(self, queries: Tensor) -> list[Tensor]:
        to_project = onednn_matmul(self.to_queries.flatten(0, 1).t(), queries.flatten(0, 1))
        return [self.to_keys.mul_(self.energy).mul_(4), to_project, self.to_energy.mul_(2)]
