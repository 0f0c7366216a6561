"""The sums behind all weights of a map, so that a page can tell them without the model.

What `explain` tells of one weight is kept once for all: a vector that depends on the query alone once for each
query, one that is the product of two others not at all.
"""

import dataclasses
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from regard.attention import AttentionLayer
from regard.interpret.explanation_result import StepAnswer, Explanation
from regard.interpret.explanation import make_explanation
from regard.interpret.answer_trace import AnswerTrace, trace_answer, read_layer_row
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import Map
from regard.viz.subject import Input, Subject
from regard.viz.sums import AnswerSums, LayerSums, Sums, SumStep

MOST_NUMBERS = 250_000
"""Numbers of all sums of a map: a megabyte and a third in a page."""
MOST_WEIGHTS = 20_000
"""Weights of a map whose sums are followed at all."""


def with_sums(subject: Subject[Input], shown: AttentionMap) -> AttentionMap:
    """Return a map that `subject` has answered with, with the sums behind its weights; as it is where these would
    be more than `MOST_NUMBERS` numbers, or the subject, touched since, would answer something else."""
    weights = sum(layer.weights.size for layer in shown.layers.values())
    names = [each.name for each in subject.layers if each.name in shown.layers]
    if not 0 < weights <= MOST_WEIGHTS or len(names) < len(shown.layers):
        return shown
    followed = trace_answer(subject, shown.input, names)
    layers: dict[str, LayerSums] = {}
    answers: list[AnswerSums] = []
    for name, (layer, events) in zip(names, followed.layers, strict=True):
        if not events.insides:
            return shown
        sums, answered = _of_layer(subject, followed.shown, name, layer, events)
        if not np.allclose(sums.weights, shown.layers[name].weights, atol=1e-4):
            return shown
        layers[name] = sums
        answers = answered or answers
    found = Sums(layers=layers, answers=answers)
    return dataclasses.replace(shown, sums=found) if _numbers(found) <= MOST_NUMBERS else shown


def _of_layer(
    subject: Subject[Input], shown: Map, name: str, layer: AttentionLayer, events: AnswerTrace
) -> tuple[LayerSums, list[AnswerSums]]:
    heads, queries, keys = shown.layers[name].weights.shape
    found = [
        [
            make_explanation(subject, shown, name, layer, events, head=head, output=query, key=0)
            for query in range(queries)
        ]
        for head in range(heads)
    ]
    first = [each.own_part for row in found for each in row]
    norms = [(each.before_norm, each.after_norm) for each in found[0]]
    sums = LayerSums(
        steps=_steps(layer, events, heads, queries, keys),
        scale=found[0][0].scale,
        scores=_row_by_row(found, "scores", keys),
        may_see=_row_by_row(found, "may_see", keys).astype(bool),
        weights=_row_by_row(found, "weights", keys),
        values=np.array([row[-1].values for row in found]),
        context=np.array([[each.context for each in row] for row in found]),
        added=np.array([each.added for each in found[0]]),
        own_part=None if None in first else np.array(first).reshape(heads, queries, -1),
        before_norm=None if None in norms[0] else np.array([before for before, _ in norms]),
        after_norm=None if None in norms[0] else np.array([after for _, after in norms]),
    )
    answered = [each.answered for each in found[0]]
    return sums, [_answer(each) for each in answered if each is not None]


def _row_by_row(found: Sequence[Sequence[Explanation]], name: str, keys: int) -> np.ndarray:
    """Return (H, Tq, Tk); a step that has seen fewer keys gives the others nothing."""
    return np.array(
        [
            [np.pad(np.array(part := getattr(each, name), float), (0, keys - len(part))) for each in row]
            for row in found
        ]
    )


def _steps(layer: AttentionLayer, events: AnswerTrace, heads: int, queries: int, keys: int) -> list[SumStep]:
    """Return what the scores are made of, each part as small as it can be kept."""
    rows = [read_layer_row(events.insides, query) for query in range(queries)]
    prepared = rows[-1].key.float()
    of_pairs = [
        [[layer.score.steps(row.query[head].float(), prepared[head, key]) for key in range(keys)] for row in rows]
        for head in range(heads)
    ]
    whole: list[np.ndarray] = []
    found: list[SumStep] = []
    for name in of_pairs[0][0][0]:
        array = np.array([[[pair[name].detach().numpy() for pair in row] for row in head] for head in of_pairs])
        factors = next(
            (
                pair
                for pair in combinations(range(len(whole)), 2)
                if np.allclose(whole[pair[0]] * whole[pair[1]], array)
            ),
            None,
        )
        if factors is not None:
            found.append(SumStep(name, None, "product", factors))
        elif (array == array[:, :, :1]).all():
            found.append(SumStep(name, array[:, :, 0], "query"))
        elif (array == array[:, :1]).all():
            found.append(SumStep(name, array[:, 0], "key"))
        else:
            found.append(SumStep(name, array, "pair"))
        whole.append(array)
    return found


def _answer(found: StepAnswer) -> AnswerSums:
    return AnswerSums(*(getattr(found, name) for name in AnswerSums._fields))


def _numbers(sums: Sums) -> int:
    """Return how many numbers sums have."""
    arrays = [
        each
        for layer in sums.layers.values()
        for each in (*vars(layer).values(), *(step.numbers for step in layer.steps))
    ]
    states = sum(len(each.state) for each in sums.answers)
    return states + sum(each.size for each in arrays if isinstance(each, np.ndarray))
