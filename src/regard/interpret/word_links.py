"""From what target steps attend to in the source to links between words.

At step t a decoder is fed target token t - 1, and is to write token t. So there are two rows of weights that may
tell where token t came from: that of the step that writes it, and that of the next one, which is fed it and so
asks *with* it (shifted attention: Zenkel et al. 2019, section 4; Chen et al. 2020, section 3.1).

Letters: C heads of all layers that read the source, one after the other; Wt and Ws words of target and source.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.attention.recording import record_own
from regard.data import PairBatch, Vocabulary, collate
from regard.data.cutting import Cut, cut_into
from regard.data.links import Link
from regard.data.places import Unit
from regard.errors import InputError
from regard.models import Seq2Seq

Head = tuple[str, int]
"""A layer by its name in the model, and a head of it."""
BATCH = 64
"""Pairs that go through a model together."""


@torch.inference_mode()
def word_weights(
    model: Seq2Seq,
    pairs: Sequence[tuple[Cut, Cut]],
    heads: Sequence[Head] | None = None,
) -> Iterator[np.ndarray]:
    """Yield for each pair of source and target what its target words attend to: (2, C, Wt, Ws + 1) float32.

    First the rows of the steps that write a word's pieces, then those of the steps that are fed them. A word
    gives the mean of what its pieces give, and is given the sum of what they are given; the last column is the
    end of the source. `heads`: which, None for all of the layers that read the source. Raises `InputError` for a
    model without such layers.
    """
    chosen = cross_attention_heads(model) if heads is None else list(heads)
    if not chosen:
        raise InputError("the model has no attention to its source: train it with attention to align with it")
    names = list(dict.fromkeys(layer for layer, _ in chosen))
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    for begin in range(0, len(pairs), BATCH):
        some = pairs[begin : begin + BATCH]
        batch = PairBatch(
            collate([source.indices for source, _ in some]), collate([target.indices for _, target in some])
        ).to(device)
        with record_own(model, layers=names) as records:
            model(batch.source, batch.source_mask, batch.target_in)
        layers = {name: records[name].weights.float().cpu().numpy() for name in names}
        for row, (source, target) in enumerate(some):
            weights = np.stack([layers[layer][row, head] for layer, head in chosen])
            yield _of_words(weights, source, target)
    model.train(was_training)


def cross_attention_heads(model: Seq2Seq) -> list[Head]:
    """Return all heads of the layers that read the source."""
    modules = dict(model.named_modules())
    return [(name, head) for name in model.cross_layers for head in range(int(modules[name].heads))]


def _of_words(weights: np.ndarray, source: Cut, target: Cut) -> np.ndarray:
    """Return weights (C, Tt, Ts) of pieces and the ends of both texts as those of words, (2, C, Wt, Ws + 1)."""
    to_words = np.zeros((len(source.indices) + 1, len(source.places) + 1), dtype=np.float32)
    to_words[np.arange(len(to_words)), [*source.word_of, len(source.places)]] = 1
    each = np.zeros((len(target.places), len(target.indices)), dtype=np.float32)
    each[target.word_of, np.arange(len(target.indices))] = 1
    each /= np.maximum(each.sum(1, keepdims=True), 1)
    steps = len(target.indices)
    rows = np.stack([weights[:, :steps], weights[:, 1 : steps + 1]])
    found: np.ndarray = each @ rows[..., : len(to_words)] @ to_words
    return found


def extract_links(weights: np.ndarray) -> frozenset[Link]:
    """Return the links of target words that attend so, (Wt, Ws + 1): each to the source word of its largest
    weight, or to none, where that is the end of the source."""
    if not weights.size:
        return frozenset()
    best = np.where(weights.max(1) > 0, weights.argmax(1), weights.shape[1] - 1)  # a word without pieces: to none
    return frozenset(
        (source, target) for target, source in enumerate(best.tolist()) if source != weights.shape[1] - 1
    )


def all_weights(
    model: Seq2Seq, pairs: Iterable[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary], unit: Unit
) -> tuple[list[tuple[Cut, Cut]], list[np.ndarray]]:
    """Return pairs cut into words, and what their target words attend to, as `word_weights` has it."""
    source, target = vocabularies
    cuts = [(cut_into(one, source, unit), cut_into(other, target, unit)) for one, other in pairs]
    return cuts, list(word_weights(model, cuts))
