"""Measure whether the largest weight of each target step is on the source step from which it originates.

A is the set of predicted links: for each target step with a known origin, the source step with the largest
weight. P is the set of possible links: all source steps from which the target step originates. S is the set of
sure links: the possible links of target steps with a single origin.

    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equation 13
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.arguments import public
from regard.attention.interventions import record_own
from regard.data.batch import PairBatch, collate
from regard.data.tokenization import TokenizedText, Unit, tokenize
from regard.data.vocabulary import Vocabulary
from regard.data.word_alignment import Link
from regard.errors import InputError
from regard.interpret.relevance import attention_mass
from regard.models.base import Seq2Seq
from regard.result import percent
from regard.statistics import Interval, ratio_interval
from regard.tasks.pairs import Pair, PairTask, alignment_mask


@public
@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Agreement of the weights of one attention layer with a known alignment."""

    error_rate: float
    """0: every largest weight is on a correct source step; 1: every largest weight is on an incorrect step."""
    interval: Interval
    """The error rate with its 95 % interval over the pairs; without ends for fewer than two pairs."""
    share: float
    """Mean attention mass (0 to 1) on the possible links."""
    uniform: float
    """The mean attention mass on the possible links under uniform attention."""

    @property
    def error_text(self) -> str:
        """The error rate as a percentage, with its interval."""
        low, high = self.interval.low, self.interval.high
        ends = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
        return f"{percent(self.error_rate)}{ends}"


def error_rate(weights: Tensor, known: Tensor) -> float:
    """Return the alignment error rate of weights (B, Tt, Ts) for known links (B, Tt, Ts) bool.

    Target steps without known links are ignored. Returns NaN if no step has known links.

    >>> weights = torch.tensor([[[0.9, 0.1], [0.8, 0.2]]])
    >>> error_rate(weights, torch.eye(2, dtype=torch.bool).unsqueeze(0))
    0.5
    """
    predicted = torch.zeros_like(known).scatter_(2, weights.argmax(-1, keepdim=True), True)
    predicted &= known.any(-1, keepdim=True)
    # If a target step has several origins, a link to any of them is possible, and no link is sure.
    sure = known & (known.sum(-1, keepdim=True) == 1)
    hits = (predicted & sure).sum() + (predicted & known).sum()
    total = predicted.sum() + sure.sum()
    return float("nan") if not total else 1.0 - (hits / total).item()


@torch.inference_mode()
def alignment(model: Seq2Seq, task: PairTask, batches: Iterable[list[Pair]]) -> dict[str, Alignment]:
    """Measure how well each cross-attention layer agrees with the known alignment.

    The decoder receives the true targets, whose origin is known. Heads are averaged.
    """
    model.eval()
    layers: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {name: [] for name in model.cross_layers}
    pair_of_step: list[np.ndarray] = []
    count = 0
    for pairs in batches:
        batch = task.batch(pairs)
        known = alignment_mask(pairs, batch.source.shape[1], batch.target.shape[1])
        counted = known.any(-1)
        pair_of_step.append(count + counted.nonzero()[:, 0].numpy())
        count += len(pairs)
        lengths = batch.source_mask.sum(1, keepdim=True).expand_as(counted)[counted]
        with record_own(model, layers=model.cross_layers) as records:
            model(batch.source, batch.source_mask, batch.target_in)
        for name, parts in layers.items():
            # The heads are averaged, because this function selects no head; `head_selection` compares single
            # heads.
            weights = records[name].weights.mean(1)
            if weights.shape[:2] != counted.shape:
                recorded, expected = tuple(weights.shape[:2]), tuple(counted.shape)
                raise InputError(
                    f"layer {name} was recorded at {recorded} steps of {expected}: if it runs step by step, "
                    f"call it with step=, the index of the target step"
                )
            # The target steps of all batches are concatenated; zeros fill the source steps up to the widest
            # batch.
            parts.append((weights[counted], known[counted], lengths))
    result = {}
    for name, parts in layers.items():
        widest = max(weights.shape[-1] for weights, _, _ in parts)
        weights, known = (
            torch.cat([torch.nn.functional.pad(p[i], (0, widest - p[i].shape[-1])) for p in parts]) for i in (0, 1)
        )
        lengths = torch.cat([part[2] for part in parts])
        result[name] = Alignment(
            error_rate=(rate := error_rate(weights.unsqueeze(0), known.unsqueeze(0))),
            interval=_interval(weights, known, np.concatenate(pair_of_step))
            or Interval(value=rate, low=None, high=None),
            share=attention_mass(weights, known).double().mean().item(),
            uniform=(known.sum(-1) / lengths).double().mean().item(),
        )
    return result


def _interval(weights: Tensor, known: Tensor, pairs: np.ndarray) -> Interval | None:
    hits = known.gather(1, weights.argmax(-1, keepdim=True))[:, 0].numpy()
    links = 1.0 + (known.sum(-1) == 1).numpy()  # of a step with one origin, the link counts in A and in S
    wrong, total = (np.bincount(pairs, counts) for counts in (links * ~hits, links))
    return ratio_interval(wrong, total)


# Links between words from cross-attention weights.
#
# At step t, a decoder reads target token t - 1 and writes token t. Two rows of weights may therefore show the
# origin of token t: the row of the step that writes token t, and the row of the next step, whose query depends on
# token t (shifted attention: Zenkel et al. 2019, section 4; Chen et al. 2020, section 3.1).
#
# Letters: C: number of heads that attend to the source, in all layers; Wt and Ws: number of target and source words.

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
    return frozenset((source, target) for target, source in enumerate(best.tolist()) if source != weights.shape[1] - 1)


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
