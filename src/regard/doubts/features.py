"""Features of a translation that show whether it can be trusted: attention, probabilities, and the text.

Of each layer N that attends to the source, from the mean of the weights of its heads:

    N from_uniform   distance of the attention from uniform attention, with unit costs (Wass-to-Unif, Guerreiro
                     et al. 2023, "Optimal transport for unsupervised hallucination detection in neural machine
                     translation")
    N end_share      share of the attention on punctuation and on the end of the source
    N entropy        mean entropy of the weights of a step, divided by that of uniform weights
    N unread         share of the source tokens that no step reads: mean of 1 - min(1, sum of weights over steps)
                     (coverage, Tu et al. 2016)
    N unread_span    the same for the worst three consecutive tokens

Of the last of these layers, if the training text is present:

    from_data        Wasserstein distance from the attention on training pairs, mean of the 4 nearest pairs of
                     similar length (Wass-to-Data, same paper)

Of the probabilities, in nats:

    improbable       negative mean log-probability per token
    weakest          the same for the three least probable tokens
    no_gain          negative mean of log p(token | source) - log p(token | empty source)
    gain_ratio       mean log-probability given the source, divided by the mean given an empty source
    reverse          `improbable` of the source given the translation, by a run of the opposite direction

Of the text:

    length           logarithm of the length of the source in characters, minus that of the translation
    repeated         count of the most frequent pair of words, minus that of the source
    copied           share of the words that also occur in the source
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import short_name
from regard.attention.recording import record_own
from regard.data import PAD, UNKNOWN, PairBatch, collate
from regard.data.vocabulary import Vocabulary
from regard.errors import InputError
from regard.evaluation.scoring import token_log_probabilities
from regard.fast.onednn import packed_logits
from regard.runs import SequenceRun

NEAREST = 4
"""Number of training pairs that `from_data` averages (Guerreiro et al. 2023)."""
LENGTH_WINDOW = 0.1
"""Largest relative difference in length between a translation and the translations that `from_data` compares."""
SPAN = 3
"""Number of consecutive tokens in `unread_span`, and of tokens in `weakest`."""
BATCH = 64
LAYER_FEATURES = ("from_uniform", "end_share", "entropy", "unread", "unread_span")
PROBABILITY_FEATURES = ("improbable", "weakest", "no_gain", "gain_ratio")
TEXT_FEATURES = ("length", "repeated", "copied")
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class References:
    """Attention of the last layer on training pairs."""

    masses: np.ndarray
    """(R, Ts): attention on each source token, mean over heads and steps, followed by zeros."""
    lengths: np.ndarray
    """(R,): number of tokens of the translation."""

    def distance(self, mass: np.ndarray, length: int) -> float:
        """Return the mean distance of a distribution (Ts,) from the nearest references of similar length.

        If no reference has a similar length, all references are compared.
        """
        near = np.abs(self.lengths - length) < LENGTH_WINDOW * length
        masses = self.masses[near] if near.any() else self.masses
        width = max(masses.shape[1], len(mass))
        difference = np.pad(masses, ((0, 0), (0, width - masses.shape[1]))) - np.pad(mass, (0, width - len(mass)))
        distances = np.abs(difference.cumsum(1)).sum(1)  # cost of moving a unit of attention by one token: 1
        return float(np.sort(distances)[:NEAREST].mean())


def feature_names(run: SequenceRun, references: References | None, reverse: SequenceRun | None) -> list[str]:
    """Return the names of the features, in the order of `measure_features`."""
    layers = [f"{short_name(layer)} {name}" for layer in run.model.cross_layers for name in LAYER_FEATURES]
    more = ["from_data"] * (references is not None), ["reverse"] * (reverse is not None)
    return [*layers, *PROBABILITY_FEATURES, *TEXT_FEATURES, *more[0], *more[1]]


def measure_features(
    run: SequenceRun, pairs: Pairs, references: References | None = None, reverse: SequenceRun | None = None
) -> np.ndarray:
    """Return the features (N, F) float64 of translations, given as pairs of source and translation.

    Raises `InputError` for a model without attention to its source.
    """
    rows, masses, lengths = _read_pairs(run, pairs)
    columns = [rows, np.array([_text_features(run, *pair) for pair in pairs]).reshape(len(pairs), -1)]
    if references is not None:
        distances = [references.distance(mass, length) for mass, length in zip(masses, lengths, strict=True)]
        columns.append(np.array(distances)[:, None])
    if reverse is not None:
        scores = reverse.score([(target, source) for source, target in pairs])
        columns.append(np.array([-score.per_token for score in scores])[:, None])
    return np.concatenate(columns, axis=1)


def read_references(run: SequenceRun, pairs: Pairs) -> References:
    """Return the attention of the last layer on pairs."""
    _, masses, lengths = _read_pairs(run, pairs)
    padded = np.zeros((len(masses), max(map(len, masses))))
    for row, mass in zip(padded, masses, strict=True):
        row[: len(mass)] = mass
    return References(masses=padded, lengths=lengths)


@torch.inference_mode()
def _read_pairs(run: SequenceRun, pairs: Pairs) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return the features of attention and probabilities (N, F), the attention of the last layer on each source,
    and the lengths of the translations in tokens, with the end of sequence."""
    model = run.model
    if not model.cross_layers:
        raise InputError("the model has no attention to its source, which the doubt needs: train with attention")
    model.eval()
    logits = packed_logits(model)
    device = next(model.parameters()).device
    sources = [run.task.source_vocabulary.encode(source) for source, _ in pairs]
    targets = [run.task.target_vocabulary.encode(target) for _, target in pairs]
    is_word = word_tokens(run.task.source_vocabulary).to(device)
    order = sorted(range(len(pairs)), key=lambda index: (len(sources[index]), len(targets[index])))
    features: dict[int, np.ndarray] = {}
    masses: dict[int, np.ndarray] = {}
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        batch = PairBatch(
            collate([sources[index] for index in chosen]), collate([targets[index] for index in chosen])
        ).to(device)
        written = batch.target != PAD
        with record_own(model, layers=model.cross_layers) as records:
            given_source = token_log_probabilities(model, logits, batch)
        parts = []
        for name in model.cross_layers:
            weights = records[name].weights.float().mean(1)
            mass = (weights * written.unsqueeze(-1)).sum(1) / written.sum(1, keepdim=True)
            parts.append(_layer_features(weights, mass, written, batch.source_mask, is_word[batch.source]))
        alone = PairBatch(collate([[] for _ in chosen]).to(device), batch.target)
        without_source = token_log_probabilities(model, logits, alone)
        parts.append(_probability_features(given_source, without_source, written))
        table, last = torch.cat(parts, 1).double().cpu().numpy(), mass.double().cpu().numpy()
        for row, index in enumerate(chosen):
            features[index] = table[row]
            masses[index] = last[row, : len(sources[index]) + 1]
    lengths = np.array([len(target) + 1 for target in targets])
    count = range(len(pairs))
    return np.array([features[index] for index in count]), [masses[index] for index in count], lengths


def word_tokens(vocabulary: Vocabulary) -> Tensor:
    """Return for each token of a vocabulary whether it contains a letter or digit: (V,) bool."""
    labels = vocabulary.labels(range(len(vocabulary)))
    words = torch.tensor([any(map(str.isalnum, label)) for label in labels])
    words[: UNKNOWN + 1] = False
    words[UNKNOWN] = True
    return words


def _layer_features(weights: Tensor, mass: Tensor, written: Tensor, valid: Tensor, is_word: Tensor) -> Tensor:
    """Return the features (B, 5) of a layer from its weights (B, Tt, Ts) and their mean over the steps (B, Ts).

    `written` (B, Tt): steps of the translation. `valid` (B, Ts): tokens of the source, and its end.
    """
    length = valid.sum(1, keepdim=True)
    uniform = valid / length
    end_share = (mass * ~is_word).sum(1)
    entropy = -torch.special.xlogy(weights, weights).sum(-1) / length.clamp(min=2).log()
    read = (weights * written.unsqueeze(-1)).sum(1).clamp(max=1)
    unread = (1 - read) * is_word
    spans = F.pad(unread, (0, SPAN - 1)).unfold(1, SPAN, 1).mean(-1)
    return torch.stack(
        [
            (mass - uniform).abs().sum(1) / 2,
            end_share,
            (entropy * written).sum(1) / written.sum(1),
            unread.sum(1) / is_word.sum(1).clamp(min=1),
            spans.amax(1),
        ],
        dim=1,
    )


def _probability_features(given_source: Tensor, alone: Tensor, written: Tensor) -> Tensor:
    """Return the features (B, 4) of log-probabilities (B, Tt) with the source, and with an empty source."""
    length = written.sum(1)
    mean, prior = given_source.sum(1) / length, alone.sum(1) / length
    weakest = given_source.sort(1).values[:, :SPAN].sum(1) / length.clamp(max=SPAN)
    ratio = mean / prior.clamp(max=-1e-6)
    return torch.stack([-mean, -weakest, prior - mean, ratio], dim=1)


def _text_features(run: SequenceRun, source: str, target: str) -> tuple[float, ...]:
    source_words, target_words = source.split(), target.split()
    letters = [word for word in target_words if any(map(str.isalpha, word))]
    known = set(source_words)
    return (
        math.log((len(source) + 1) / (len(target) + 1)),
        _most_frequent(target_words) - _most_frequent(source_words),
        sum(word in known for word in letters) / max(len(letters), 1),
    )


def _most_frequent(words: Sequence[str]) -> int:
    """Return how often the most frequent pair of neighbouring words occurs.

    >>> _most_frequent("a dog a dog a dog".split())
    3
    """
    return max(Counter(pairwise(words)).values(), default=0)
