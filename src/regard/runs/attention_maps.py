"""Attention maps of answers: run a model on one input, and collect weights, labels and the true answer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.attention.names import find_name, short_name
from regard.attention.recording import record_own
from regard.data.batch import PairBatch, collate, read_source
from regard.data.vocabulary import BOS, EOS, replace_surrogates
from regard.tasks.batch import TokenBatch
from regard.tasks.pairs import alignment_mask
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import CROSS, LayerKind, make_layer_map

if TYPE_CHECKING:
    from regard.interpret.head_selection import KeptHeads
    from regard.models.base import AnswerModel, LanguageModel, Seq2Seq
    from regard.runs.alignment import LinkedPair
    from regard.tasks.base import Task
    from regard.tasks.pairs import SequenceTask
    from regard.tasks.tokens import TokenTask

REST = "rest"
"""Label of the additional learned step of a model trained on all lengths."""
NULL_LABEL = "␣"
"""Label of the null character and of whitespace characters on an axis."""
MOST_UNKNOWN = 20
"""Largest number of unknown symbols in a note."""
Labels = dict[LayerKind, tuple[list[str], list[str]]]


@torch.inference_mode()
def map_of_answer(model: AnswerModel, task: Task, inputs: torch.Tensor) -> AttentionMap:
    """Run a model on one input (1, T), and return its attention map."""
    if model.training:
        model.eval()
    with record_own(model) as records:
        positions, logits = model.learned_positions, model(inputs)
    probabilities, prediction = logits[0].softmax(-1).max(-1)
    text, outputs, truth = task.render(inputs[0]), task.output_labels(inputs[0]), task.answer(inputs)[0]
    relevance = task.relevance(inputs)[0].numpy()
    letters = list(map(_visible, text))
    labels: Labels = {"encoder": (letters, letters), "decoder": (outputs, outputs)}
    layers = {}
    for full, record in records.items():
        name, weights = short_name(full), record.weights[0].float().numpy()
        rest = weights.shape[-1] - len(letters)
        # The rest step (the additional learned step) does not represent an input, so no answer depends on the
        # rest step.
        relevant = np.pad(relevance, ((0, 0), (0, rest))) if find_name(full, model.cross_layers) else None
        # A pooling model has one query for all outputs.
        queries = outputs if weights.shape[1] == len(outputs) else ["all outputs"]
        cross = (queries, letters + [REST] * rest)
        if relevant is not None and len(queries) < len(relevant):
            relevant = np.logical_or.reduce(relevant, axis=0, keepdims=True)
        layers[name] = make_layer_map(name, weights, {**labels, CROSS: cross}, relevant)
    return AttentionMap(
        task=task.name,
        input=text,
        prediction=prediction.tolist(),
        truth=truth.tolist(),
        layers=layers,
        outputs=outputs,
        probabilities=probabilities.tolist(),
        position_norms=None if positions is None else positions.norm(dim=-1).tolist(),
    )


@torch.inference_mode()
def map_of_pair(
    model: Seq2Seq, task: SequenceTask, source: str, tokens: list[int], *, forced: bool = False
) -> AttentionMap:
    """Return the attention map of a model that answers `source` with `tokens` (without the end of sequence).

    The decoder processes all tokens at once, with the same attention as in a stepwise search. `forced`: the
    tokens are not the model's answer, and the map's prediction is the most probable token at each step.
    """
    model.eval()
    source = replace_surrogates(source)  # the text that the map shows
    batch = pair_batch(model, task, source, tokens)
    with record_own(model) as records:
        logits = model(batch.source, batch.source_mask, batch.target_in)
    probabilities = logits[0].float().softmax(-1).cpu()
    written = probabilities.argmax(-1) if forced else torch.tensor([*tokens, EOS])
    # Labels show the text, even if the model reads a symbol as unknown.
    sources = [*task.source_vocabulary.pieces(source), *task.source_vocabulary.labels([EOS])]
    targets = task.target_vocabulary.labels([*tokens, EOS])
    known = task.known(source)
    relevant = None
    if known is not None and known.target == task.target_vocabulary.decode(tokens):
        relevant = alignment_mask([known], len(sources), len(targets))[0].numpy()
    outputs, inputs = [_visible(label) for label in targets], [_visible(label) for label in sources]
    fed = [*task.target_vocabulary.labels([BOS]), *outputs[:-1]]
    labels: Labels = {"cross": (outputs, inputs), "encoder": (inputs, inputs), "decoder": (outputs, fed)}
    return AttentionMap(
        task=task.name,
        input=source,
        prediction=task.target_vocabulary.decode(written.tolist() if forced else tokens),
        truth=known.target if known is not None else task.target_vocabulary.decode(tokens) if forced else None,
        layers={
            (name := short_name(full)): make_layer_map(
                name, record.weights[0].float().cpu().numpy(), labels, relevant, written=True
            )
            for full, record in records.items()
        },
        outputs=outputs,
        probabilities=probabilities[range(len(written)), written].tolist(),
    )


def pair_batch(model: Seq2Seq, task: SequenceTask, source: str, tokens: list[int]) -> PairBatch:
    """Return a source and the tokens of its answer (without the end of sequence) as a batch on the model's
    device."""
    batch = PairBatch(read_source([source], task.source_vocabulary), collate([tokens]))
    return batch.to(next(model.parameters()).device)


@torch.inference_mode()
def map_of_tokens(model: LanguageModel, task: TokenTask, inputs: torch.Tensor) -> AttentionMap:
    """Return the attention of a language model on one input (1, T); each token has a row of weights over the
    tokens up to its position.

    `outputs` and `probabilities` are those of the most likely next token at each position. Prediction and truth
    are the outputs of the task.
    """
    model.eval()
    with record_own(model) as records:
        logits = model(inputs.to(next(model.parameters()).device))[0].float().cpu()
    targets = task.answer(inputs)[0]
    is_output = TokenBatch(inputs, targets[None], None).is_output[0]
    labels = [_visible(label) for label in task.labels(inputs[0])]
    probabilities: list[float] = []
    if task.input_width:
        outputs = [f"{value:.2f}" for value in logits[:, 0].tolist()]
        prediction = " ".join(label for label, shown in zip(outputs, is_output, strict=True) if shown)
        truth = " ".join(f"{value:.2f}" for value in targets[is_output].tolist())
    else:
        best, predicted = logits.softmax(-1).max(-1)
        probabilities, outputs = best.tolist(), [_visible(label) for label in task.labels(predicted)]
        prediction, truth = task.render(predicted[is_output]), task.render(targets[is_output])
    relevant = task.relevance(inputs)[0].numpy() if task.knows_relevance else None
    layers = {}
    for full, record in records.items():
        name, weights = short_name(full), record.weights[0].float().cpu().numpy()
        own = make_layer_map(name, weights, {"decoder": (labels, labels)}, None)
        layers[name] = dataclasses.replace(own, relevant=relevant, title=own.title.replace(" of the outputs", ""))
    positions = model.learned_positions
    return AttentionMap(
        task=task.name,
        input=task.render(inputs[0]),
        prediction=prediction,
        truth=truth if bool(is_output.any()) else None,
        layers=layers,
        outputs=outputs,
        probabilities=probabilities,
        position_norms=None if positions is None else positions.norm(dim=-1).tolist(),
    )


def map_of_links(task: str, pair: LinkedPair) -> AttentionMap:
    """Return a map with one layer: attention of the target words to the source words and the end of the
    source."""
    weights = np.concatenate([pair.weights, pair.nothing[:, None]], axis=1)
    linked = np.zeros(weights.shape, dtype=bool)
    for source, target in pair.links:
        linked[target, source] = True
    targets, sources = [_visible(word) for word in pair.target], [_visible(word) for word in pair.source]
    labels: Labels = {CROSS: (targets, [*sources, "</s>"])}
    return AttentionMap(
        task=task,
        input=" ".join(pair.source),
        prediction=" ".join(pair.target),
        truth=None,
        layers={
            CROSS: dataclasses.replace(
                make_layer_map(CROSS, weights[None], labels, linked, written=True), head_names=(pair.heads,)
            )
        },
        outputs=targets,
        probabilities=[],
    )


def note_of(length: str, unknown: list[str]) -> str:
    notes = [f"training {length}: expect errors"] if length else []
    notes += [f"not in the model's vocabulary: {', '.join(map(repr, unknown[:MOST_UNKNOWN]))}"] if unknown else []
    return "; ".join(notes)


def add_note(attention: AttentionMap, note: str) -> AttentionMap:
    return dataclasses.replace(attention, note="; ".join(filter(None, (note, attention.note))))


def select_aligning_head(heads: KeptHeads | None, attention: AttentionMap) -> AttentionMap:
    """Return a map that first shows the best alignment head, if heads were chosen."""
    if heads is None or "head" not in heads.ways:
        return attention
    [(layer, head)] = heads.ways["head"].heads
    return dataclasses.replace(attention, alignment_head=(short_name(layer), head))


def _visible(label: str) -> str:
    return NULL_LABEL if label.isspace() else label
