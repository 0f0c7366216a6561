"""What the features of translations are measured on: probabilities of tokens, and attention.

`SearchTrace` contains what a model computes for one translation. A search gives the trace of its answer;
`read_traces` computes the traces of other translations. Both are equal up to rounding.
"""

from collections.abc import Sequence

import numpy as np
import torch

from regard.activations.interface import record
from regard.attention.functional import repeat_groups
from regard.attention.hooks import find_layer
from regard.data.batch import PairBatch, collate
from regard.decoding.search import SearchTrace
from regard.decoding.translation import value_lengths
from regard.evaluation.scoring import token_log_probabilities, total_probabilities
from regard.fast.onednn import packed_logits
from regard.runs.sequence_run import SequenceRun

SMOOTHING = 0.5
"""Number of further predictions of each token."""
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
    """Return the probabilities and the attention of given translations, from one pass over each pair."""
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
