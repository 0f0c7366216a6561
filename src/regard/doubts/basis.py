"""What the features of translations are compared with: probabilities of tokens and attention on known pairs.

`SearchTrace` contains what a model computes for one translation. A search gives the trace of its answer;
`read_traces` computes the traces of other translations. Both are equal up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from regard.attention import find_layer
from regard.attention.recording import record_own
from regard.data import PairBatch, collate
from regard.decoding import SearchTrace
from regard.decoding.trace import value_lengths
from regard.errors import InputError
from regard.evaluation.scoring import token_log_probabilities, total_probabilities
from regard.fast.onednn import packed_logits
from regard.runs import SequenceRun

NEAREST = 4
"""Number of training pairs whose distances are averaged (Guerreiro et al. 2023)."""
LENGTH_WINDOW = 0.1
"""Largest relative difference in length between a translation and the translations that it is compared with."""
SMALLEST_PROBABILITY = 1e-9
"""Smallest mean probability of a token, so that its logarithm is finite."""
BATCH = 64
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class References:
    """Attention of the last layer on training pairs."""

    masses: np.ndarray
    """(R, Ts): attention on each source token, mean over heads and steps, followed by zeros."""
    lengths: np.ndarray
    """(R,): number of tokens of the translation."""

    @cached_property
    def _by_length(self) -> tuple[np.ndarray, np.ndarray]:
        """Cumulative masses and lengths, by length."""
        order = self.lengths.argsort(kind="stable")
        return self.masses[order].cumsum(1), self.lengths[order]

    def distances(self, masses: Sequence[np.ndarray], lengths: Sequence[int]) -> np.ndarray:
        """Return the mean distance (N,) of each distribution (Ts,) from the nearest references of similar length.

        `lengths` (N,): number of tokens of each translation. If no reference has a similar length, all references
        are compared.
        """
        all_sums, known = self._by_length
        width = max(all_sums.shape[1], *map(len, masses))
        all_sums = np.pad(all_sums, ((0, 0), (0, width - all_sums.shape[1])), mode="edge")
        own = np.ones((len(masses), width))
        for row, mass in zip(own, masses, strict=True):
            row[: len(mass)] = mass.cumsum()
            row[len(mass) :] = row[len(mass) - 1]
        distances = np.zeros(len(masses))
        for length in set(lengths):
            rows = np.flatnonzero(np.array(lengths) == length)
            begin = np.searchsorted(known, length - LENGTH_WINDOW * length, "right")
            end = np.searchsorted(known, length + LENGTH_WINDOW * length, "left")
            sums = all_sums[begin:end] if begin < end else all_sums
            # The cost of moving a unit of attention by one token is 1.
            costs = torch.cdist(torch.from_numpy(own[rows]), torch.from_numpy(sums), p=1)
            distances[rows] = costs.topk(min(NEAREST, len(sums)), largest=False).values.mean(1)
        return distances


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What the features of translations are compared with."""

    frequencies: np.ndarray
    """(V,): logarithm of the mean predicted probability of each target token."""
    references: References | None
    """None without the training text."""


def read_basis(run: SequenceRun, known: Pairs, training: Pairs) -> Basis:
    """Return the mean predicted probabilities on `known` pairs, and the attention on `training` pairs, if any.

    Raises `InputError` for a model without attention to its source.
    """
    traces = read_traces(run, training)
    logits = packed_logits(run.model)
    batches = _batches(*encode_pairs(run, known))
    totals = [total_probabilities(run.model, logits, batch).cpu().numpy() for _, batch in batches]
    total = np.sum(totals, axis=0)
    frequencies = np.log((total / total.sum()).clip(SMALLEST_PROBABILITY))
    references = None
    if traces:
        masses = [trace.attention[-1].mean(0) for trace in traces]
        padded = np.zeros((len(masses), max(map(len, masses))))
        for row, mass in zip(padded, masses, strict=True):
            row[: len(mass)] = mass
        lengths = np.array([len(trace.log_probabilities) for trace in traces])
        references = References(masses=padded, lengths=lengths)
    return Basis(frequencies=frequencies, references=references)


@torch.inference_mode()
def read_traces(run: SequenceRun, pairs: Pairs) -> list[SearchTrace]:
    """Return the probabilities and the attention of given translations, from one pass over each pair.

    Raises `InputError` for a model without attention to its source.
    """
    model = run.model.eval()
    if not model.cross_layers:
        raise InputError("the model has no attention to its source, which the doubt needs: train with attention")
    logits, layers = packed_logits(model), [find_layer(model, name) for name in model.cross_layers]
    sources, targets = encode_pairs(run, pairs)
    traces: dict[int, SearchTrace] = {}
    for chosen, batch in _batches(sources, targets):
        with record_own(model, layers=model.cross_layers, inside=True) as records:
            log_probabilities = token_log_probabilities(model, logits, batch).cpu().numpy()
        attention, contribution = [], []
        for name, layer in zip(model.cross_layers, layers, strict=True):
            weights, inside = records[name].weights.float(), records[name].inside
            assert inside is not None
            lengths = value_lengths(layer, inside.value).float()
            attention.append(weights.mean(1).cpu().numpy())
            contribution.append(torch.einsum("bhts,bhs->bt", weights, lengths).cpu().numpy())
        weights_of, added = np.stack(attention), np.stack(contribution)
        for row, index in enumerate(chosen):
            steps, length = len(targets[index]) + 1, len(sources[index]) + 1
            traces[index] = SearchTrace(
                sources[index],
                targets[index],
                log_probabilities[row, :steps],
                weights_of[:, row, :steps, :length],
                added[:, row, :steps],
            )
    return [traces[index] for index in range(len(pairs))]


def encode_pairs(run: SequenceRun, pairs: Pairs) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of the sources and of the targets, which are cut at the largest length of a target.

    Raises `InputError` for a source that is too long.
    """
    run.check_texts(source for source, _ in pairs)
    source, target, most = run.task.source_vocabulary, run.task.target_vocabulary, run.task.longest_target
    return [source.encode(text) for text, _ in pairs], [target.encode(text)[:most] for _, text in pairs]


def _batches(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[tuple[list[int], PairBatch]]:
    """Return batches of similar length, with the indices of their pairs."""
    order = sorted(range(len(sources)), key=lambda index: (len(sources[index]), len(targets[index])))
    parts = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
    return [
        (
            part,
            PairBatch(collate([sources[index] for index in part]), collate([targets[index] for index in part])),
        )
        for part in parts
    ]
