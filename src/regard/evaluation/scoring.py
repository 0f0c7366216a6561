"""Log-probabilities of targets under a model, for filtering corpora and for probing models."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from regard.arguments import public
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD, Vocabulary, empty_if_blank, is_blank
from regard.errors import plural
from regard.fast.onednn import OneDNNMode, packed_logits
from regard.fast.threads import map_batches
from regard.models.base import Seq2Seq
from regard.result import Result

STEPS_AT_ONCE = 128  # Number of steps whose logits are computed together. A larger number needs more memory.


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Scored(Result):
    """The score of a target given its source."""

    log_probability: float
    """Natural logarithm of the probability of all tokens and the end of sequence."""
    tokens: int
    """Number of tokens, including the end of sequence."""

    @property
    def per_token(self) -> float:
        """Mean log-probability per token, which does not favor short targets. NaN for 0 tokens."""
        return self.log_probability / self.tokens if self.tokens else math.nan

    def __str__(self) -> str:
        return f"log-probability {self.log_probability:.4f} of {plural(self.tokens, 'token')}"


def score_pairs(
    model: Seq2Seq,
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    pairs: Sequence[tuple[str, str]],
    *,
    batchsize: int = 64,
) -> list[Scored]:
    """Return the log-probability of each target given its source, in the order of the pairs.

    Unknown text is read as the unknown symbol. A blank target is scored as an empty answer. A pair with a blank
    source has no score (NaN, 0 tokens), because the answer to a blank source is always empty. Batches contain
    `batchsize` pairs of similar length. On a CPU, batches run in parallel on PyTorch's threads.

    >>> from regard.data.vocabulary import WordVocabulary
    >>> from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
    >>> vocabulary = WordVocabulary(["Hund", "dog"])
    >>> symbols = len(vocabulary)
    >>> model = RecurrentSeq2Seq(RecurrentConfig(hidden=8), source_symbols=symbols, target_symbols=symbols)
    >>> [scored] = score_pairs(model, vocabulary, vocabulary, [("Hund", "dog")])
    >>> scored.tokens, scored.log_probability < 0
    (2, True)
    """
    model.eval()
    encoded = [
        (source_vocabulary.encode(source), target_vocabulary.encode(empty_if_blank(target))) for source, target in pairs
    ]
    scorable = [index for index, (source, _) in enumerate(pairs) if not is_blank(source)]
    order = sorted(scorable, key=lambda index: tuple(map(len, encoded[index])))
    batches = [order[begin : begin + batchsize] for begin in range(0, len(order), batchsize)]
    logits = packed_logits(model)

    def score(indices: list[int]) -> list[Scored]:
        sources, targets = zip(*(encoded[index] for index in indices), strict=True)
        batch = PairBatch(collate(sources), collate(targets))
        totals, lengths = token_log_probabilities(model, logits, batch).sum(1), (batch.target != PAD).sum(1)
        return [
            Scored(log_probability=total, tokens=tokens)
            for total, tokens in zip(totals.tolist(), lengths.tolist(), strict=True)
        ]

    scores = dict(zip(chain(*batches), chain(*map_batches(model, score, batches)), strict=True))
    no_score = Scored(log_probability=math.nan, tokens=0)
    return [scores.get(index, no_score) for index in range(len(pairs))]


@torch.inference_mode()
def token_log_probabilities(model: Seq2Seq, logits: Callable[[Tensor], Tensor], batch: PairBatch) -> Tensor:
    """Return the log-probability of each token of the targets and of their ends, (B, Tt) float64; 0 for padding.
    `logits`: the model's output layer (`packed_logits`), which is applied only to steps with a target."""
    batch = batch.to(next(model.parameters()).device)
    valid = batch.target != PAD
    targets = batch.target[valid].split(STEPS_AT_ONCE)
    parts = [
        scores.gather(1, target.unsqueeze(1)).squeeze(1)
        for scores, target in zip(_log_probabilities(model, logits, batch), targets, strict=True)
    ]
    log_probabilities = torch.zeros(valid.shape, dtype=torch.float64, device=valid.device)
    log_probabilities[valid] = torch.cat(parts).double()
    return log_probabilities


@torch.inference_mode()
def total_probabilities(model: Seq2Seq, logits: Callable[[Tensor], Tensor], batch: PairBatch) -> Tensor:
    """Return the sum of the predicted distributions over all steps of the targets and their ends, (V,) float64.
    `logits` as in `token_log_probabilities`."""
    batch = batch.to(next(model.parameters()).device)
    parts = [scores.exp_().sum(0, dtype=torch.float64) for scores in _log_probabilities(model, logits, batch)]
    return torch.stack(parts).sum(0)


def _log_probabilities(model: Seq2Seq, logits: Callable[[Tensor], Tensor], batch: PairBatch) -> Iterator[Tensor]:
    """Yield the predicted log-probabilities (N, V) of all steps with a target, `STEPS_AT_ONCE` at once."""
    with OneDNNMode():
        states = model.read(batch.target_in, model.encode(batch.source, batch.source_mask))
    for chunk in states[batch.target != PAD].split(STEPS_AT_ONCE):
        scores = logits(chunk)
        yield torch.log_softmax(scores, -1, out=scores)
