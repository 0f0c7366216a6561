"""Inputs for explanation methods: a pair of source and target on which the model runs with changed embeddings."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from regard.arguments import check_value
from regard.attention.names import short_name
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD, SPECIAL
from regard.errors import InputError, unknown_choice
from regard.tasks.pairs import alignment_mask
from regard.viz.subject import Patchable, ProbeInput

if TYPE_CHECKING:
    from torch import Tensor

    from regard.models.base import Seq2Seq
    from regard.tasks.pairs import SequenceTask


def prepare_tokens(task: Any, input: str | Tensor, width: int = 0) -> Tensor:
    """Return the tokens (T,) of a text; tokens are returned unchanged, as are real inputs (T, `width`).

    Raises `InputError` for another type, another shape, or a token that the task does not have.
    """
    tokens: Tensor = task.parse(input)[0] if isinstance(input, str) else check_value("input", input, torch.Tensor)
    symbols, shape = len(task.vocabulary), tuple(tokens.shape)
    if width and (tokens.dim() != 2 or shape[1] != width):
        raise InputError(f"input of shape {shape} is not (T, {width}): give a text, or one input")
    if not width and (
        tokens.dim() != 1 or tokens.is_floating_point() or not 0 <= tokens.min() <= tokens.max() < symbols
    ):
        raise InputError(
            f"input of shape {shape} and {tokens.dtype} is not one sequence of tokens (T,) from 0 to "
            f"{symbols - 1}: give a text, or an input of `unseen`"
        )
    return tokens


def trial_of_pair(model: Seq2Seq, task: SequenceTask, source: str, target: str) -> ProbeInput:
    """Return a pair as the input of an explanation method. The target is the decoder input."""
    tokens = collate([task.target_vocabulary.encode(target)])
    batch = PairBatch(collate([task.source_vocabulary.encode(source)]), tokens)
    known = task.known(source)
    relevant = None
    if known is not None and known.target == target:  # the alignment of another answer is unknown
        relevant = alignment_mask([known], batch.source.shape[1], tokens.shape[1])[0].numpy()
    batch = batch.to(next(model.parameters()).device)
    run_tokens = partial(_run_sources, model, batch.target_in)
    return ProbeInput(
        run=lambda count: run_tokens(batch.source.expand(count, -1)),
        embedding=model.input_embedding,
        layers=[*map(short_name, model.cross_layers)],
        relevant=relevant,
        tokens=batch.source[0],
        run_tokens=run_tokens,
        alphabet=range(len(SPECIAL), len(task.source_vocabulary)),
    )


def patchable_run(run: Any) -> Patchable:
    """Return the forward passes of a run on one input."""

    def prepare(value: Any, clean: Any = None) -> Any:
        is_source = isinstance(clean, tuple) and isinstance(value, str)
        return run.prepare((value, clean[1]) if is_source else value)

    def outputs(prepared: Any) -> Tensor:
        logits: Tensor = run.trial(prepared).run(1)[0].float()
        return logits

    def answer_class(text: str, classes: int, argument: str = "answer") -> int:
        names = run.called(range(classes))
        if text not in names:
            raise unknown_choice(argument, text, names)
        return int(names.index(text))

    return Patchable(prepare, outputs, answer_class, nullcontext)


def _run_sources(model: Seq2Seq, target_in: Tensor, sources: Tensor) -> Tensor:
    logits: Tensor = model(sources, sources != PAD, target_in.expand(len(sources), -1))
    return logits
