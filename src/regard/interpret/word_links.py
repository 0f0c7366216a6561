"""Derive links between words from cross-attention weights.

At step t, a decoder reads target token t - 1 and writes token t. Two rows of weights may therefore show the
origin of token t: the row of the step that writes token t, and the row of the next step, whose query depends on
token t (shifted attention: Zenkel et al. 2019, section 4; Chen et al. 2020, section 3.1).

Letters: C: number of heads that attend to the source, in all layers; Wt and Ws: number of target and source
words.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.attention.recording import record_own
from regard.data.batch import PairBatch, collate
from regard.data.tokenization import TokenizedText, Unit, tokenize
from regard.data.vocabulary import Vocabulary
from regard.data.word_alignment import Link
from regard.errors import InputError
from regard.models.base import Seq2Seq

Head = tuple[str, int]
"""The name of a layer in the model, and the index of a head."""
BATCH = 64
"""Pairs in a batch."""


@torch.inference_mode()
def word_weights(
    model: Seq2Seq,
    pairs: Sequence[tuple[TokenizedText, TokenizedText]],
    heads: Sequence[Head] | None = None,
) -> Iterator[np.ndarray]:
    """Yield the weights between the words of each pair of source and target, (2, C, Wt, Ws + 1) float32.

    Index 0 contains the steps that write the pieces of a word; index 1 contains the steps that read these
    pieces. The row of a target word is the mean over its pieces; the column of a source word is the sum over
    its pieces. The last column is the end symbol of the source. `heads`: by default all heads that attend to
    the source.

    Raises `InputError` for a model without heads that attend to the source.
    """
    chosen = cross_attention_heads(model) if heads is None else list(heads)
    if not chosen:
        raise InputError(
            "the model has no attention to its source, so it cannot align words: train a model with attention"
        )
    names = list(dict.fromkeys(layer for layer, _ in chosen))
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    for begin in range(0, len(pairs), BATCH):
        chunk = pairs[begin : begin + BATCH]
        batch = PairBatch(
            collate([source.indices for source, _ in chunk]), collate([target.indices for _, target in chunk])
        ).to(device)
        with record_own(model, layers=names) as records:
            model(batch.source, batch.source_mask, batch.target_in)
        layers = {name: records[name].weights.float().cpu().numpy() for name in names}
        for row, (source, target) in enumerate(chunk):
            weights = np.stack([layers[layer][row, head] for layer, head in chosen])
            yield _merge_pieces(weights, source, target)
    model.train(was_training)


def cross_attention_heads(model: Seq2Seq) -> list[Head]:
    modules = dict(model.named_modules())
    return [(name, head) for name in model.cross_layers for head in range(int(modules[name].heads))]


def _merge_pieces(weights: np.ndarray, source: TokenizedText, target: TokenizedText) -> np.ndarray:
    """Return the weights of words (2, C, Wt, Ws + 1) from the weights of pieces and end symbols (C, Tt, Ts)."""
    to_words = np.zeros((len(source.indices) + 1, len(source.spans) + 1), dtype=np.float32)
    to_words[np.arange(len(to_words)), [*source.word_ids, len(source.spans)]] = 1
    mean = np.zeros((len(target.spans), len(target.indices)), dtype=np.float32)
    mean[target.word_ids, np.arange(len(target.indices))] = 1
    mean /= np.maximum(mean.sum(1, keepdims=True), 1)
    steps = len(target.indices)
    # The last step writes the end symbol, so the rows of the steps that read a token begin one step later.
    rows = np.stack([weights[:, :steps], weights[:, 1 : steps + 1]])
    merged: np.ndarray = mean @ rows[..., : len(to_words)] @ to_words
    return merged


def extract_links(weights: np.ndarray) -> frozenset[Link]:
    """Return a link from each target word to the source word with the largest weight, from weights (Wt, Ws +
    1).

    A word whose largest weight is on the end of the source has no link.

    >>> extract_links(np.array([[0.2, 0.1, 0.7], [0.5, 0.4, 0.1]]))
    frozenset({(0, 1)})
    """
    if not weights.size:
        return frozenset()
    # A word without pieces has only zero weights, and gets no link.
    best = np.where(weights.max(1) > 0, weights.argmax(1), weights.shape[1] - 1)
    return frozenset(
        (source, target) for target, source in enumerate(best.tolist()) if source != weights.shape[1] - 1
    )


def all_weights(
    model: Seq2Seq, pairs: Iterable[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary], unit: Unit
) -> tuple[list[tuple[TokenizedText, TokenizedText]], list[np.ndarray]]:
    """Return tokenized pairs with their words, and the weights from `word_weights`."""
    source_vocabulary, target_vocabulary = vocabularies
    tokenized = [
        (tokenize(source, source_vocabulary, unit), tokenize(target, target_vocabulary, unit))
        for source, target in pairs
    ]
    return tokenized, list(word_weights(model, tokenized))
