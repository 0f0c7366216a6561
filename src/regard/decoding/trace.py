"""Traces of a beam search: probabilities and attention of its answers, without a second pass over an answer.

Letters: L cross-attention layers, B sources, K prefixes per source, H heads, d width of a head, T tokens of an
answer and Ts tokens of a source, with their ends.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.data.vocabulary import PAD
from regard.decoding.search import Hypothesis, SearchTrace, Step


def value_lengths(layer: nn.Module, values: Tensor) -> Tensor:
    """Return the lengths (..., H, Ts) of the values (..., H, Ts, d) of a layer after its output projection."""
    transformed = values
    if isinstance(layer, MultiHeadAttention):
        matrices = layer.output.weight.unflatten(1, (-1, values.shape[-1]))
        # |W v|² = vᵀ (Wᵀ W) v, whose matrix is as narrow as a head.
        products = torch.einsum("ohd,ohe->hde", matrices, matrices)
        transformed = torch.einsum("...hsd,hde->...hse", values, products)
    lengths: Tensor = (transformed * values).sum(-1).clamp_min(0).sqrt()
    return lengths


class _Step(NamedTuple):
    """What is kept of a step, for B rows."""

    row_of: np.ndarray
    """(sources,): row of each source, -1 for finished sources."""
    attention: Tensor
    """(L, B, K, Ts)."""
    contribution: Tensor
    """(L, B, K)."""
    ends: dict[tuple[int, float], int]
    """Prefix of each finished hypothesis, by its source and its log-probability."""
    parents: np.ndarray
    """(B, K'): prefix that each new prefix extends."""
    tokens: np.ndarray
    """(B, K'): token of each new prefix."""
    totals: np.ndarray
    """(B, K'): log-probability of each new prefix."""


class Tracer:
    """Collects the steps of a beam search by `FastTransformer`, and traces its hypotheses.

    The collected attention needs less memory than the keys and values of the search for sources of less than
    `2 D` tokens, where D is the width of the states.
    """

    def __init__(self, model: Any) -> None:
        self._layers = [layer.cross for layer in model.decoder.layers]
        self._steps: list[_Step] = []

    def add_step(self, step: Step) -> None:
        """Keep a step of the search."""
        sources, values = list(step.sources), step.state.memory.values
        if not self._steps:
            parts = zip(self._layers, values, strict=True)
            self._lengths = torch.stack([value_lengths(*part) for part in parts])  # (L, B, H, Ts)
        row_of = np.full(self._lengths.shape[1], -1)
        row_of[sources] = range(len(sources))
        lengths = self._lengths.index_select(1, torch.tensor(sources)).unsqueeze(-1)
        weights = torch.stack(step.state.cross_weights).view(*lengths.shape[:3], -1, lengths.shape[3])
        self._steps.append(
            _Step(
                row_of,
                weights.mean(2),
                torch.matmul(weights, lengths).sum(2).squeeze(-1),
                {(sources[row], total): prefix for row, prefix, total in step.ends},
                step.parents.numpy(),
                step.tokens.numpy(),
                step.totals.numpy(),
            )
        )

    def traced(self, best: Sequence[Hypothesis], sources: Tensor) -> list[Hypothesis]:
        """Return the hypotheses of sources (B, Ts) with their traces.

        A hypothesis without an end of sequence has no trace.
        """
        prefixes, tokens, totals = self._paths(best)
        layers, count, width = len(self._layers), *sources.shape
        attention = np.zeros((layers, count, len(self._steps), width), np.float32)
        contribution = np.zeros((layers, count, len(self._steps)), np.float32)
        for time, step in enumerate(self._steps):
            [places] = np.nonzero(prefixes[time] >= 0)
            rows = torch.from_numpy(step.row_of[places]), torch.from_numpy(prefixes[time, places])
            attention[:, places, time] = step.attention[:, *rows, :width].numpy()
            contribution[:, places, time] = step.contribution[:, *rows].numpy()
        log_probabilities = np.diff(totals, axis=0, prepend=0.0)
        results = []
        for row, hypothesis in enumerate(best):
            steps, source = len(hypothesis.tokens) + 1, [token for token in sources[row].tolist() if token != PAD]
            trace = SearchTrace(
                source[:-1],
                hypothesis.tokens,
                log_probabilities[:steps, row],
                attention[:, row, :steps, : len(source)],
                contribution[:, row, :steps],
            )
            known = prefixes[0, row] >= 0 and tokens[: steps - 1, row].tolist() == hypothesis.tokens
            results.append(replace(hypothesis, trace=trace if known else None))
        return results

    def _paths(self, best: Sequence[Hypothesis]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the prefix of each hypothesis before each step (T, B), and its token and log-probability after.

        The prefix is -1 after the end of a hypothesis, and at all steps of a hypothesis without an end.
        """
        prefixes, tokens = np.full((2, len(self._steps) + 1, len(best)), -1)
        totals = np.zeros(prefixes.shape)
        for place, hypothesis in enumerate(best):
            time = len(hypothesis.tokens)
            if hypothesis.finished:
                prefixes[time, place] = self._steps[time].ends[place, hypothesis.log_probability]
                totals[time, place] = hypothesis.log_probability
        for time in reversed(range(len(self._steps))):
            step, [places] = self._steps[time], np.nonzero(prefixes[time + 1] >= 0)
            rows, after = step.row_of[places], prefixes[time + 1, places]
            prefixes[time, places] = step.parents[rows, after]
            tokens[time, places] = step.tokens[rows, after]
            totals[time, places] = step.totals[rows, after]
        return prefixes[:-1], tokens, totals[:-1]
