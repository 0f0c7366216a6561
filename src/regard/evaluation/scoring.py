"""How likely a model finds given targets: for filtering corpora, and for asking what it knows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.models import Seq2Seq
from regard.result import Result
from regard.text import PAD, PairBatch, Vocabulary, collate


@dataclass(frozen=True, kw_only=True, repr=False)
class Scored(Result):
    """One target, given its source."""

    log_probability: float
    """Of all tokens and the end of sequence: natural logarithm."""
    tokens: int
    """How many these are."""

    @property
    def per_token(self) -> float:
        """The mean over the tokens, which does not favour short targets."""
        return self.log_probability / self.tokens

    def __str__(self) -> str:
        return f"log-probability {self.log_probability:.4f} of {self.tokens} tokens"


@torch.inference_mode()
def score_pairs(
    model: Seq2Seq,
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    pairs: Sequence[tuple[str, str]],
    *,
    batchsize: int = 64,
) -> list[Scored]:
    """Return the log-probability of each target given its source, in order.

    What the vocabularies do not know counts as one unknown symbol. Pairs of like length go through the model
    together, `batchsize` at once.
    """
    model.eval()
    device = next(model.parameters()).device
    encoded = [(source_vocabulary.encode(source), target_vocabulary.encode(target)) for source, target in pairs]
    order = sorted(range(len(pairs)), key=lambda index: tuple(map(len, encoded[index])))
    found: dict[int, Scored] = {}
    for begin in range(0, len(order), batchsize):
        indices = order[begin : begin + batchsize]
        sources, targets = zip(*(encoded[index] for index in indices), strict=True)
        batch = PairBatch(collate(sources), collate(targets)).to(device)
        logits = model(batch.source, batch.source_mask, batch.target_in)
        each = logits.log_softmax(-1).gather(2, batch.target.unsqueeze(-1)).squeeze(-1)
        there = batch.target != PAD
        totals = (each.double() * there).sum(1).tolist()
        for index, total, tokens in zip(indices, totals, there.sum(1).tolist(), strict=True):
            found[index] = Scored(log_probability=total, tokens=tokens)
    return [found[index] for index in range(len(pairs))]
