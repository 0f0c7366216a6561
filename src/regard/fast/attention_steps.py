"""Attention of one query for each sample, step after step, with its way back written out: for `unrolled`.

What the query of a step needs is worked out as the loop goes back through time; the gradients of memory and score
are sums over all steps, and made at the end.

Letters: T target steps, B samples, Ts source steps, D width of queries, M of the memory, N of what the score
prepared.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention import Additive, Concat, Dot, General, ScaledDot, Score, product


class Looking:
    """Scores that are products, q · k times `scale`, with keys that are as wide as the queries.

    `tensors`: what has a gradient, prepared (B, Ts, N), states (B, Ts, M), and what the score has of its own.
    `mask` (B, 1, Ts), True = may be attended, somewhere in each sample.
    """

    def __init__(self, mask: Tensor, tensors: Sequence[Tensor], scale: float = 1.0) -> None:
        self.tensors, self.scale = tensors, scale
        hidden = torch.zeros_like(mask, dtype=tensors[0].dtype)
        self.hidden = hidden.masked_fill_(~mask, torch.finfo(hidden.dtype).min / 2)

    def begin(self, count: int, tensors: Sequence[Tensor]) -> None:
        """Make room for what `count` steps leave behind; `tensors` as above, without their history."""
        self.prepared, self.states = tensors[:2]
        self.weights = self.hidden.new_empty(count, *self.hidden.shape)  # (T, B, 1, Ts)

    def look(self, time: int, query: Tensor) -> Tensor:
        """Return the context (B, M) that the query (B, D) of step `time` finds."""
        scores = self.score(time, query).add_(self.hidden)
        torch.softmax(scores, -1, out=self.weights[time])
        return torch.bmm(self.weights[time], self.states).squeeze(1)

    def score(self, time: int, query: Tensor) -> Tensor:
        """Return the scores (B, 1, Ts) of the query of step `time`."""
        del time
        return torch.bmm((query * self.scale).unsqueeze(1), self.prepared.mT)

    def begin_back(self) -> None:
        """Make room for what goes into the sums over all steps."""
        self.to_scores = torch.empty_like(self.weights)
        self.to_contexts = self.states.new_empty(*self.weights.shape[:2], self.states.shape[2])

    def back(self, time: int, to_context: Tensor) -> Tensor:
        """Return the gradient of the query (B, D) of step `time`, given that of its context (B, M)."""
        self.to_contexts[time] = to_context
        to_weights = torch.bmm(to_context.unsqueeze(1), self.states.mT)
        weights, to_scores = self.weights[time], self.to_scores[time]
        torch._softmax_backward_data(to_weights, weights, -1, weights.dtype, grad_input=to_scores)
        return self.back_score(time, to_scores)

    def back_score(self, time: int, to_scores: Tensor) -> Tensor:
        """Return the gradient of the query, given that of its scores (B, 1, Ts)."""
        del time
        return torch.bmm(to_scores, self.prepared).squeeze(1).mul_(self.scale)

    def finish(self, queries: Tensor) -> list[Tensor]:
        """Return the gradients of all tensors; `queries` (T, B, D) as they were."""
        weights = self.weights.squeeze(2).permute(1, 2, 0)
        to_states = torch.bmm(weights, self.to_contexts.transpose(0, 1))
        to_prepared, *to_own = self.finish_score(queries)
        return [to_prepared, to_states, *to_own]

    def finish_score(self, queries: Tensor) -> list[Tensor]:
        """Return the gradients of what was prepared and of what the score has of its own."""
        to_scores = self.to_scores.squeeze(2).permute(1, 2, 0)
        return [torch.bmm(to_scores, queries.transpose(0, 1)).mul_(self.scale)]


class AdditiveLooking(Looking):
    """Scores v · tanh(W q + k); W (N, D) and v (1, N) are the score's own.

    All pairs are worked out again on the way back, as in `attention.energy`, and by tanh z = 2 σ(2z) - 1, for
    PyTorch's sigmoid takes a sixth of the time of its tanh. The - 1 is left out: a softmax does not see what all
    its scores have in common, and the gradient that it hands back sums up to zero.
    """

    def begin(self, count: int, tensors: Sequence[Tensor]) -> None:
        """Make room for what `count` steps leave behind."""
        super().begin(count, tensors)
        self.project, self.energy = tensors[2:]
        self.keys, self.steep, self.double = self.prepared * 2, self.project.t() * 2, self.energy[0] * 2
        self.queries = self.prepared.new_empty(count, len(self.prepared), self.prepared.shape[2])

    def score(self, time: int, query: Tensor) -> Tensor:
        """Return the scores (B, 1, Ts) of the query of step `time`, but for what they have in common."""
        torch.mm(query, self.steep, out=self.queries[time])
        return (self._pairs(time) @ self.double).unsqueeze(1)

    def _pairs(self, time: int) -> Tensor:
        """Return σ(2 (W q + k)), (B, Ts, N)."""
        return (self.keys + self.queries[time].unsqueeze(1)).sigmoid_()

    def begin_back(self) -> None:
        """Make room for what goes into the sums over all steps."""
        super().begin_back()
        self.to_energy, self.to_queries = torch.zeros_like(self.energy), torch.empty_like(self.queries)
        self.to_keys = torch.zeros_like(self.keys)

    def back_score(self, time: int, to_scores: Tensor) -> Tensor:
        """Return the gradient of the query, given that of its scores (B, 1, Ts)."""
        pairs = self._pairs(time)
        self.to_energy.addmm_(to_scores.view(1, -1), pairs.flatten(0, 1))
        slopes = torch.addcmul(pairs, pairs, pairs, value=-1)  # d σ = σ - σ²
        self.to_keys.addcmul_(slopes, to_scores.mT)
        found = torch.bmm(to_scores, slopes).squeeze(1)
        return torch.mul(found, self.energy, out=self.to_queries[time]).mul_(4) @ self.project

    def finish_score(self, queries: Tensor) -> list[Tensor]:
        """Return the gradients of what was prepared, of W and of v."""
        to_project = product(self.to_queries.flatten(0, 1).t(), queries.flatten(0, 1))
        return [self.to_keys.mul_(self.energy).mul_(4), to_project, self.to_energy.mul_(2)]


def looking_at(score: Score, prepared: Tensor, states: Tensor, mask: Tensor) -> Looking | None:
    """Return what looks at a memory with a score: prepared (B, Ts, N), states (B, Ts, M), mask (B, 1, Ts).

    None for scores of other kinds, and where a sample has nothing to look at.
    """
    if type(score) in (Dot, ScaledDot, General):
        looking = Looking(mask, (prepared, states), score.scale(score.width))
    elif type(score) is Additive:
        looking = AdditiveLooking(mask, (prepared, states, score.query.weight, score.energy.weight))
    elif type(score) is Concat:
        project = score.both.weight[:, : score.width]
        looking = AdditiveLooking(mask, (prepared, states, project, score.energy.weight))
    else:
        return None
    return looking if bool(mask.any(-1).all()) else None
