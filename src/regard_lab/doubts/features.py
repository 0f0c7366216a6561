"""Features of a translation that show whether it can be trusted: attention, probabilities (in nats), and text.

They are measured on a `SearchTrace`. A search gives the trace of its answer; `read_traces` computes the traces of
other translations. Both are equal up to rounding.

The attention is the mean of the weights of the heads of a layer N that attends to the source:

    N from_uniform   distance of the attention from uniform attention, with unit costs (Wass-to-Unif, Guerreiro
                     et al. 2023, "Optimal transport for unsupervised hallucination detection in neural machine
                     translation")
    N entropy        mean entropy of the weights of a step, divided by that of uniform weights
    N unread         mean over source tokens of 1 - min(1, sum of weights over steps) (coverage, Tu et al. 2016)
    N unread_span    the same for the worst three consecutive tokens
    N contribution   lengths of the transformed values times their weights, summed over heads and source, mean
                     over steps (Kobayashi et al. 2020)
    no_gain          negative mean of log p(token | source, tokens before) - log p(token), where p(token) is the
                     mean of the predicted probabilities over known pairs
    reverse          `improbable` of the source given the translation, by a run of the opposite direction
    length           logarithm of the length of the source in characters, minus that of the translation

`MEANINGS` describes all features.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from regard.activations.interface import record
from regard.attention.functional import repeat_groups
from regard.attention.layer import find_layer
from regard.attention.names import short_name
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD, UNKNOWN
from regard.decoding.search import SearchTrace
from regard.decoding.translation import value_lengths
from regard.evaluation.scoring import token_log_probabilities, total_probabilities
from regard.fast.onednn import packed_logits
from regard.runs.sequence_run import SequenceRun

SMOOTHING = 0.5  # Number of further predictions of each token
BATCH = 64
Pairs = Sequence[tuple[str, str]]


def read_frequencies(run: SequenceRun, known: Pairs) -> np.ndarray:
    """Return the logarithm of the mean predicted probability of each target token (V,) on `known` pairs."""
    logits = packed_logits(run.model.eval())
    batches = _batches(*encode_pairs(run, known))
    totals = [total_probabilities(run.model, logits, batch).cpu().numpy() for _, batch in batches]
    # Without smoothing, the rare tokens of the known pairs would seem frequent to their own sentences.
    total = np.sum(totals, axis=0) + SMOOTHING
    frequencies: np.ndarray = np.log(total / total.sum()).round(3)
    return frequencies


@torch.inference_mode()
def read_traces(run: SequenceRun, pairs: Pairs) -> list[SearchTrace]:
    model = run.model.eval()
    logits, layers = packed_logits(model), [find_layer(model, name) for name in model.cross_layers]
    sources, targets = encode_pairs(run, pairs)
    traces: dict[int, SearchTrace] = {}
    for chosen, batch in _batches(sources, targets):
        names = [f"{name}.{kind}" for name in model.cross_layers for kind in ("weights", "v")]
        with record(model, *names) as cache:
            log_probabilities = token_log_probabilities(model, logits, batch).cpu().numpy()
        attention, contribution = [], []
        for name, layer in zip(model.cross_layers, layers, strict=True):
            weights, values = cache[f"{name}.weights"].float(), cache[f"{name}.v"].transpose(1, 2)
            lengths = value_lengths(layer, repeat_groups(values, layer.heads)).float()
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
    """Return the tokens of the sources and of the targets, which are cut at the largest length of a target."""
    run.check_texts(source for source, _ in pairs)
    source, target, most = run.task.source_vocabulary, run.task.target_vocabulary, run.task.longest_target
    return [source.encode(text) for text, _ in pairs], [target.encode(text)[:most] for _, text in pairs]


def _batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[tuple[list[int], PairBatch]]:
    """Return batches of similar length, with the indices of their pairs."""
    order = sorted(range(len(sources)), key=lambda index: (len(sources[index]), len(targets[index])))
    parts = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
    return [
        (part, PairBatch(collate([sources[index] for index in part]), collate([targets[index] for index in part])))
        for part in parts
    ]


MEANINGS = {  # What each feature measures, by its name without the layer
    "from_uniform": "distance of the attention from uniform",
    "end_share": "share of the attention on punctuation and the end of the source",
    "entropy": "entropy of the attention",
    "unread": "share of the source that no step reads",
    "unread_span": "share of three source tokens that no step reads",
    "contribution": "length of the values that a step reads from the source",
    "improbable": "negative log-probability per token",
    "least": "negative log-probability of the least probable token",
    "weakest": "negative log-probability of the three least probable tokens",
    "uneven": "standard deviation of the log-probability per token",
    "no_gain": "log-probability per token in usual text, minus that in this translation",
    "length": "log of the length of the source divided by that of the translation",
    "repeated": "repeats of the most frequent pair of words beyond those of the source",
    "copied": "share of the words that are copied from the source",
    "reverse": "negative log-probability of the source given the translation",
}
SPAN = 3  # Number of consecutive tokens in `unread_span`, and of tokens in `weakest`
SMALLEST_WEIGHT = np.float32(1e-30)  # Smaller weights are raised to this value in the logarithm of the entropy
LAYER_FEATURES, OTHER_FEATURES = [*MEANINGS][:6], [*MEANINGS][6:-1]
"""Features of each layer, and further features; `reverse` is the last."""


class FeatureReader:
    """Measures the features of translations of a run. `frequencies` (V,): see `read_frequencies`. `reverse`: run of the
    opposite direction, for its feature."""

    def __init__(self, run: SequenceRun, frequencies: np.ndarray, reverse: SequenceRun | None = None) -> None:
        self.run, self.frequencies, self.reverse = run, frequencies, reverse
        vocabulary = run.task.source_vocabulary
        labels = vocabulary.labels(range(len(vocabulary)))
        self._is_word = np.array([any(map(str.isalnum, label)) for label in labels])
        self._is_word[:UNKNOWN] = False
        self._is_word[UNKNOWN] = True

    @property
    def names(self) -> list[str]:
        layers = [f"{short_name(layer)} {name}" for layer in self.run.model.cross_layers for name in LAYER_FEATURES]
        return [*layers, *OTHER_FEATURES, *(["reverse"] if self.reverse is not None else [])]

    def measure(self, pairs: Pairs, traces: Sequence[SearchTrace | None] | None = None) -> np.ndarray:
        """Return the features (N, F) float64 of translations, given as pairs of source and translation. `traces`:
        traces of the search that wrote the translations, where known. The model reads the other pairs."""
        known = traces or [None] * len(pairs)
        unread = [pair for pair, trace in zip(pairs, known, strict=True) if trace is None]
        read = iter(read_traces(self.run, unread))
        complete = [next(read) if trace is None else trace for trace in known]
        order = sorted(range(len(complete)), key=lambda row: (len(complete[row].source), len(complete[row].tokens)))
        parts = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
        features = np.concatenate([self._batch_features([complete[row] for row in part]) for part in parts])
        texts = np.array([_text_features(*pair) for pair in pairs]).reshape(len(pairs), -1)
        columns = [features[np.argsort(order)], texts]
        if self.reverse is not None:
            columns.append(_reverse_feature(self.reverse, pairs)[:, None])
        return np.concatenate(columns, axis=1)

    def _batch_features(self, traces: Sequence[SearchTrace]) -> np.ndarray:
        source = collate([trace.source for trace in traces]).numpy()
        target = collate([trace.tokens for trace in traces]).numpy()
        written, valid, is_word = target != PAD, source != PAD, self._is_word[source]
        shape = len(self.run.model.cross_layers), *target.shape
        log_probabilities = np.zeros(target.shape)
        weights, contribution = np.zeros((*shape, source.shape[1]), np.float32), np.zeros(shape)
        for row, trace in enumerate(traces):
            _, steps, length = trace.attention.shape
            log_probabilities[row, :steps] = trace.log_probabilities
            weights[:, row, :steps, :length] = trace.attention
            contribution[:, row, :steps] = trace.contribution
        layers = zip(weights, contribution, strict=True)
        parts = [_layer_features(*layer, written, valid, is_word) for layer in layers]
        # The features of the log-probabilities, which are 0 after the end, and of the usual ones of the tokens
        lengths, usual = written.sum(1), self.frequencies[target]
        mean = log_probabilities.sum(1) / lengths
        variance = (((log_probabilities - mean[:, None]) * written) ** 2).sum(1) / lengths
        weakest = np.sort(log_probabilities, axis=1)[:, :SPAN].sum(1) / lengths.clip(max=SPAN)
        surplus = (usual * written).sum(1) / lengths - mean
        parts.append(np.stack([-mean, -log_probabilities.min(1), -weakest, np.sqrt(variance), surplus], axis=1))
        return np.concatenate(parts, axis=1)


def _layer_features(
    weights: np.ndarray, contribution: np.ndarray, written: np.ndarray, valid: np.ndarray, is_word: np.ndarray
) -> np.ndarray:
    """Return the features (B, 6) of a layer from weights (B, Tt, Ts) and contributions (B, Tt), which are 0 outside
    `written` (B, Tt), steps of the translation, and `valid` (B, Ts), tokens of the source and its end."""
    steps, length = written.sum(1), valid.sum(1)
    read = weights.sum(1)
    mass = read / steps[:, None]
    entropy = -(weights * np.log(np.maximum(weights, SMALLEST_WEIGHT))).sum((1, 2)) / np.log(length.clip(2))
    unread = (1 - read.clip(max=1)) * is_word
    spans = np.lib.stride_tricks.sliding_window_view(np.pad(unread, ((0, 0), (0, SPAN - 1))), SPAN, 1).mean(-1)
    return np.stack(
        [
            np.abs(mass - valid / length[:, None]).sum(1) / 2,
            (mass * ~is_word).sum(1),
            entropy / steps,
            unread.sum(1) / is_word.sum(1).clip(1),
            spans.max(1),
            contribution.sum(1) / steps,
        ],
        axis=1,
    )


def _reverse_feature(reverse: SequenceRun, pairs: Pairs) -> np.ndarray:
    """Return the feature `reverse` (N,). The texts are cut at the largest lengths of the run. The tokens of the
    source of a blank translation have equal probabilities."""

    def fit(text: str, *, target: bool = False) -> str:
        if reverse.too_long(text, target=target) is None:
            return text
        vocabulary, most = reverse.task.source_vocabulary, reverse.task.longest_source
        if target:
            vocabulary, most = reverse.task.target_vocabulary, reverse.task.longest_target
        return vocabulary.decode(vocabulary.encode(text)[:most])

    scores = reverse.score([(fit(target), fit(source, target=True)) for source, target in pairs])
    equal = math.log(len(reverse.task.target_vocabulary))
    return np.array([-score.per_token if score.tokens else equal for score in scores])


def _text_features(source: str, target: str) -> tuple[float, ...]:
    source_words, target_words = source.split(), target.split()
    letters = [word for word in target_words if any(map(str.isalpha, word))]
    known = set(source_words)
    return (
        math.log((len(source) + 1) / (len(target) + 1)),
        _most_frequent(target_words) - _most_frequent(source_words),
        sum(word in known for word in letters) / max(len(letters), 1),
    )


def _most_frequent(words: Sequence[str]) -> int:
    return max(Counter(pairwise(words)).values(), default=0)
