"""The forward pass of a run whose attention `attend` shows."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.data.vocabulary import replace_surrogates
from regard.interpret.score_calls import own_forward_pass
from regard.models.seq2seq import Seq2Seq
from regard.runs.attention_maps import pair_batch
from regard.viz.forward_pass import ForwardPass


def replay(run: Any, input: str) -> ForwardPass:
    """Return the pass of a run on an input; the decoder input of a sequence model is its best answer."""
    model = run.model.eval()
    if isinstance(model, Seq2Seq):
        [[best, *_]] = run.search([input])
        batch = pair_batch(model, run.task, replace_surrogates(input), best.tokens)
        return own_forward_pass(model, partial(model, batch.source, batch.source_mask, batch.target_in))
    inputs = run.task.parse(input).to(next(model.parameters()).device)
    return own_forward_pass(model, partial(model, inputs))
