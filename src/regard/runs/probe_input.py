"""Inputs for explanation methods: a pair of source and target on which the model runs with changed
embeddings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from regard.data import PairBatch, collate
from regard.tasks import alignment_mask
from regard.viz import ProbeInput

if TYPE_CHECKING:
    from torch import Tensor

    from regard.models import Seq2Seq
    from regard.tasks import SequenceTask


def trial_of_pair(model: Seq2Seq, task: SequenceTask, source: str, target: str) -> ProbeInput:
    """Return a pair as the input of an explanation method. The target is the decoder input."""
    tokens = collate([task.target_vocabulary.encode(target)])
    batch = PairBatch(collate([task.source_vocabulary.encode(source)]), tokens)
    known = task.known(source)
    relevant = None
    if known is not None:
        relevant = alignment_mask([known], batch.source.shape[1], tokens.shape[1])[0].numpy()
    batch = batch.to(next(model.parameters()).device)
    return ProbeInput(partial(_copies, model, batch), model.input_embedding, model.cross_layers, relevant)


def _copies(model: Seq2Seq, batch: PairBatch, count: int) -> Tensor:
    """Return the logits (count, Tt, V) of copies of one pair."""
    source, target_in = (part.expand(count, -1) for part in (batch.source, batch.target_in))
    logits: Tensor = model(source, batch.source_mask.expand(count, -1), target_in)
    return logits
