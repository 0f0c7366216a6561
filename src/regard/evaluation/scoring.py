"""How likely a model finds given targets: for filtering corpora, and for asking what it knows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data import PAD, PairBatch, Vocabulary, collate
from regard.data.vocabulary import empty_if_blank, is_blank
from regard.fast.onednn import OneDNNMode, packed_logits
from regard.fast.threads import map_in_threads
from regard.models import Seq2Seq
from regard.result import Result

SOME = 128
"""Steps whose logits are there at once."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Scored(Result):
    """One target, given its source."""

    log_probability: float
    """Of all tokens and the end of sequence: natural logarithm."""
    tokens: int
    """How many these are."""

    @property
    def per_token(self) -> float:
        """The mean over the tokens, which does not favour short targets; NaN of 0 tokens."""
        return self.log_probability / self.tokens if self.tokens else math.nan

    def __str__(self) -> str:
        return f"log-probability {self.log_probability:.4f} of {self.tokens} tokens"


def score_pairs(
    model: Seq2Seq,
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    pairs: Sequence[tuple[str, str]],
    *,
    batchsize: int = 64,
) -> list[Scored]:
    """Return the log-probability of each target given its source, in order.

    What the vocabularies do not know counts as one unknown symbol. A blank target is scored as an empty answer; a
    blank source has no other, so its pair has no score: NaN, of 0 tokens. Pairs of like length go through the
    model together, `batchsize` at once, and on a CPU such batches side by side, in as many threads as PyTorch may
    use.
    """
    model.eval()
    encoded = [
        (source_vocabulary.encode(source), target_vocabulary.encode(empty_if_blank(target)))
        for source, target in pairs
    ]
    asked = [index for index, (source, _) in enumerate(pairs) if not is_blank(source)]
    order = sorted(asked, key=lambda index: tuple(map(len, encoded[index])))
    batches = [order[begin : begin + batchsize] for begin in range(0, len(order), batchsize)]
    logits = packed_logits(model)

    def score(indices: list[int]) -> list[Scored]:
        sources, targets = zip(*(encoded[index] for index in indices), strict=True)
        return _score(model, logits, PairBatch(collate(sources), collate(targets)))

    found: dict[int, Scored] = {}
    for indices, scored in zip(batches, map_in_threads(model, score, batches), strict=True):
        found.update(zip(indices, scored, strict=True))
    none = Scored(log_probability=math.nan, tokens=0)
    return [found.get(index, none) for index in range(len(pairs))]


@torch.inference_mode()
def _score(model: Seq2Seq, logits: Callable[[Tensor], Tensor], batch: PairBatch) -> list[Scored]:
    """Score a batch; `logits` is the model's vocabulary layer, applied where there is a target."""
    batch = batch.to(next(model.parameters()).device)
    with OneDNNMode():
        states = model.read(batch.target_in, model.encode(batch.source, batch.source_mask))
    there = batch.target != PAD
    parts = []
    for some, target in zip(states[there].split(SOME), batch.target[there].split(SOME), strict=True):
        found = logits(some)
        parts.append(torch.log_softmax(found, -1, out=found).gather(1, target.unsqueeze(1)).squeeze(1))
    each = torch.zeros(there.shape, dtype=torch.float64, device=there.device)
    each[there] = torch.cat(parts).double()
    return [
        Scored(log_probability=total, tokens=tokens)
        for total, tokens in zip(each.sum(1).tolist(), there.sum(1).tolist(), strict=True)
    ]
