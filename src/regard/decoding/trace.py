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

from regard.attention import MultiHeadAttention
from regard.data import PAD
from regard.decoding.search import Hypothesis, Step, Trace


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
    """What is kept of a step."""

    row_of: dict[int, int]
    """Row of each source."""
    attention: Tensor
    """(L, B, K, Ts)."""
    contribution: Tensor
    """(L, B, K)."""
    ends: dict[int, list[tuple[int, float]]]
    """Prefix and log-probability of each finished hypothesis of a source."""
    parents: list[list[int]]
    tokens: list[list[int]]
    totals: list[list[float]]


class Tracer:
    """Collects the steps of a beam search by `FastTransformer`, and traces its hypotheses."""

    def __init__(self, model: Any) -> None:
        self._layers = [layer.cross for layer in model.decoder.layers]
        self._steps: list[_Step] = []

    def add_step(self, step: Step) -> None:
        """Keep a step of the search."""
        sources, memory = step.sources, step.state.memory.states
        if not self._steps:
            parts = zip(self._layers, memory, strict=True)
            self._lengths = torch.stack([value_lengths(layer, part[1]) for layer, part in parts])  # (L, B, H, Ts)
        lengths = self._lengths.index_select(1, torch.tensor(sources)).unsqueeze(-1)
        weights = torch.stack(step.state.cross_weights).view(*lengths.shape[:3], -1, lengths.shape[3])
        ends: dict[int, list[tuple[int, float]]] = {}
        for row, prefix, total in step.ends:
            ends.setdefault(sources[row], []).append((prefix, total))
        self._steps.append(
            _Step(
                {source: row for row, source in enumerate(sources)},
                weights.mean(2),
                torch.matmul(weights, lengths).sum(2).squeeze(-1),
                ends,
                step.parents.tolist(),
                step.tokens.tolist(),
                step.totals.tolist(),
            )
        )

    def traced(self, best: Sequence[Hypothesis], sources: Tensor) -> list[Hypothesis]:
        """Return the hypotheses of sources (B, Ts) with their traces.

        A hypothesis without an end of sequence has no trace.
        """
        paths = [self._path(source, hypothesis) for source, hypothesis in enumerate(best)]
        layers, count, width = len(self._layers), *sources.shape
        attention = np.zeros((layers, count, len(self._steps), width), np.float32)
        contribution = np.zeros((layers, count, len(self._steps)), np.float32)
        for time, step in enumerate(self._steps):
            places = [place for place, (prefixes, _) in enumerate(paths) if time < len(prefixes)]
            rows = [step.row_of[place] for place in places]
            prefixes = [paths[place][0][time] for place in places]
            attention[:, places, time] = step.attention[:, rows, prefixes, :width].numpy()
            contribution[:, places, time] = step.contribution[:, rows, prefixes].numpy()
        results = []
        for row, (hypothesis, (path, totals)) in enumerate(zip(best, paths, strict=True)):
            steps, source = len(path), [token for token in sources[row].tolist() if token != PAD]
            trace = Trace(
                source[:-1],
                hypothesis.tokens,
                np.diff(totals, prepend=0.0),
                attention[:, row, :steps, : len(source)],
                contribution[:, row, :steps],
            )
            results.append(replace(hypothesis, trace=trace if steps else None))
        return results

    def _path(self, source: int, hypothesis: Hypothesis) -> tuple[list[int], list[float]]:
        """Return the prefix that each step of a hypothesis extended, and the log-probabilities after each step.

        Both are empty for a hypothesis without an end of sequence.
        """
        count = len(hypothesis.tokens)
        ends = self._steps[count].ends.get(source, []) if hypothesis.finished else []
        for prefix, total in ends:
            prefixes, totals, tokens = [prefix], [total], []
            for step in reversed(self._steps[:count]):
                row, prefix = step.row_of[source], prefixes[-1]
                prefixes.append(step.parents[row][prefix])
                totals.append(step.totals[row][prefix])
                tokens.append(step.tokens[row][prefix])
            if total == hypothesis.log_probability and tokens[::-1] == hypothesis.tokens:
                return prefixes[::-1], totals[::-1]
        return [], []
