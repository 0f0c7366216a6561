"""From a model's answer to an attention map."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.attention import short_name
from regard.attention.recording import record_own
from regard.data import BOS, EOS, PairBatch, collate, read_source
from regard.data.vocabulary import replace_surrogates
from regard.interpret.relevance import pad_keys
from regard.tasks import alignment_mask
from regard.viz import CROSS, AttentionMap, LayerKind, make_layer_map

if TYPE_CHECKING:
    from regard.interpret import KeptHeads
    from regard.models import AnswerModel, Seq2Seq
    from regard.runs.aligning import LinkedPair
    from regard.tasks import SequenceTask, Task

REST = "rest"
"""Label of the learned step that a model trained over all lengths rests on."""
NULL_LABEL = "␣"
"""How the null character, and any other blank, is shown on an axis."""
MOST_UNKNOWN = 20
"""Unknown symbols that a note names, at most."""
Labels = dict[LayerKind, tuple[list[str], list[str]]]


@torch.inference_mode()
def map_of_answer(model: AnswerModel, task: Task, inputs: torch.Tensor) -> AttentionMap:
    """Run `model` on one input (1, T) and keep what it attended to."""
    if model.training:
        model.eval()
    with record_own(model) as records:
        logits = model(inputs)
    probabilities, prediction = logits[0].softmax(-1).max(-1)
    letters = [_visible(letter) for letter in task.render(inputs[0])]
    outputs = task.output_labels(inputs[0])
    labels: Labels = {"encoder": (letters, letters), "decoder": (outputs, outputs)}
    layers = {}
    for full, each in records.items():
        name, weights = short_name(full), each.weights[0].float().numpy()
        keys = letters + [REST] * (weights.shape[-1] - len(letters))
        reads = full in model.cross_layers
        relevant = pad_keys(task.relevance(inputs), len(keys))[0].numpy() if reads else None
        layers[name] = make_layer_map(name, weights, {**labels, CROSS: (outputs, keys)}, relevant)
    positions = model.learned_positions
    return AttentionMap(
        task=task.name,
        input=task.render(inputs[0]),
        prediction=prediction.tolist(),
        truth=task.answer(inputs)[0].tolist(),
        layers=layers,
        outputs=outputs,
        probabilities=probabilities.tolist(),
        position_norms=None if positions is None else positions.norm(dim=-1).tolist(),
    )


@torch.inference_mode()
def map_of_pair(
    model: Seq2Seq, task: SequenceTask, source: str, tokens: list[int], *, forced: bool = False
) -> AttentionMap:
    """Keep what a model attends to while it answers `source` with `tokens`, the end of sequence not among them.

    The tokens are fed back to the decoder all at once, which attends as it did when it wrote them one by one.
    `forced`: the tokens are not the model's own; its prediction is what it would write at each step after them.
    """
    model.eval()
    source = replace_surrogates(source)  # as it is to be shown
    batch = PairBatch(read_source([source], task.source_vocabulary), collate([tokens]))
    batch = batch.to(next(model.parameters()).device)
    with record_own(model) as records:
        logits = model(batch.source, batch.source_mask, batch.target_in)
    likely = logits[0].float().softmax(-1).cpu()
    written = likely.argmax(-1) if forced else torch.tensor([*tokens, EOS])
    # What the model does not know is shown as what it is.
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
                name, each.weights[0].float().cpu().numpy(), labels, relevant, written=True
            )
            for full, each in records.items()
        },
        outputs=outputs,
        probabilities=likely[range(len(written)), written].tolist(),
    )


def map_of_links(task: str, found: LinkedPair) -> AttentionMap:
    """Return what the words of a target attend to, in one layer: the source's words, and its end."""
    weights = np.concatenate([found.weights, found.nothing[:, None]], axis=1)
    linked = np.zeros(weights.shape, dtype=bool)
    for source, target in found.links:
        linked[target, source] = True
    targets, sources = [_visible(word) for word in found.target], [_visible(word) for word in found.source]
    labels: Labels = {CROSS: (targets, [*sources, "</s>"])}
    return AttentionMap(
        task=task,
        input=" ".join(found.source),
        prediction=" ".join(found.target),
        truth=None,
        layers={
            CROSS: dataclasses.replace(
                make_layer_map(CROSS, weights[None], labels, linked, written=True), head_names=(found.heads,)
            )
        },
        outputs=targets,
        probabilities=[],
    )


def note_of(length: str, unknown: list[str]) -> str:
    """Say what is unusual about an input: its length, and symbols that the model does not know."""
    notes = [f"training {length}: errors are to be expected"] if length else []
    notes += [f"the model does not know {', '.join(map(repr, unknown[:MOST_UNKNOWN]))}"] if unknown else []
    return "; ".join(notes)


def opened(kept: KeptHeads | None, attention: AttentionMap) -> AttentionMap:
    """Return a map that is looked at from the best of the heads on that were chosen to align by."""
    if kept is None or "head" not in kept.ways:
        return attention
    [(layer, head)] = kept.ways["head"].heads
    return dataclasses.replace(attention, alignment_head=(short_name(layer), head))


def _visible(label: str) -> str:
    return NULL_LABEL if label.isspace() else label
