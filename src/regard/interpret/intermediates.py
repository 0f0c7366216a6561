"""Add the intermediate values of all weights to an attention map, so that a page can explain the weights
offline.

The values are the results of `explain`, without duplicates: a vector that depends only on the query is stored
once per query, and the product of two other vectors is not stored.
"""

import dataclasses
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from regard.attention.descriptions import is_plain
from regard.attention.hooks import AttentionLayer, attention_layers
from regard.attention.names import short_name
from regard.interpret.explanation import (
    AnswerTrace,
    Explanation,
    make_explanation,
    read_layer_row,
    trace_answer,
)
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import AnswerIntermediates, Intermediates, LayerIntermediates, Map, ScoreStep
from regard.viz.subject import Input, Subject

MAX_NUMBERS = 250_000
"""Largest number of intermediate values in a map; these values take 1.3 MB in a page."""
MAX_WEIGHTS = 20_000
"""Largest number of weights in a map for which intermediate values are computed."""


NOT_STORED = "this page does not contain the computation of these weights: use regard explain"
"""Note on a map whose layers have other parts than the softmax of a score."""


def with_sums(subject: Subject[Input], shown: AttentionMap) -> AttentionMap:
    """Return a map of `subject` with the intermediate values of its weights.

    The map is returned unchanged if it would contain more than `MAX_NUMBERS` values, or if an intervention has
    changed the weights since. For a mechanism with other steps than the softmax of a score, the map is
    returned with a note, because a page computes only these steps.
    """
    weights = sum(layer.weights.size for layer in shown.layers.values())
    names = [layer.name for layer in subject.layers if layer.name in shown.layers]
    own = {short_name(name): layer for name, layer in attention_layers(subject.model).items()}
    if any(name in own and not is_plain(own[name]) for name in names):
        return dataclasses.replace(shown, note="; ".join(filter(None, (shown.note, NOT_STORED))))
    if not 0 < weights <= MAX_WEIGHTS or len(names) < len(shown.layers):
        return shown
    # The answer is computed again, because a map contains no intermediate values.
    answer = trace_answer(subject, shown.input, names)
    layers: dict[str, LayerIntermediates] = {}
    answers: list[AnswerIntermediates] = []
    for name, (layer, trace) in zip(names, answer.layers, strict=True):
        if not trace.insides:
            return shown
        sums, layer_answers = _layer_values(subject, answer.shown, name, layer, trace)
        if not np.allclose(sums.weights, shown.layers[name].weights, atol=1e-4):
            return shown
        layers[name] = sums
        answers = layer_answers or answers
    values = Intermediates(layers=layers, answers=answers)
    return dataclasses.replace(shown, sums=values) if _count_numbers(values) <= MAX_NUMBERS else shown


def _layer_values(
    subject: Subject[Input], shown: Map, name: str, layer: AttentionLayer, trace: AnswerTrace
) -> tuple[LayerIntermediates, list[AnswerIntermediates]]:
    heads, queries, keys = shown.layers[name].weights.shape
    explanations = [
        [
            make_explanation(subject, shown, name, layer, trace, head=head, output=query, key=0)
            for query in range(queries)
        ]
        for head in range(heads)
    ]
    first_head = explanations[0]
    own_parts = [query.own_part for head in explanations for query in head]
    norms = [(query.before_norm, query.after_norm) for query in first_head]
    sums = LayerIntermediates(
        steps=_score_steps(layer, trace, heads, queries, keys),
        scale=first_head[0].scale,
        scores=_stack_rows(explanations, "scores", keys),
        may_see=_stack_rows(explanations, "may_see", keys).astype(bool),
        weights=_stack_rows(explanations, "weights", keys),
        values=np.array([head[-1].values for head in explanations]),
        context=np.array([[query.context for query in head] for head in explanations]),
        added=np.array([query.added for query in first_head]),
        own_part=None if None in own_parts else np.array(own_parts).reshape(heads, queries, -1),
        before_norm=None if None in norms[0] else np.array([before for before, _ in norms]),
        after_norm=None if None in norms[0] else np.array([after for _, after in norms]),
    )
    fields = AnswerIntermediates._fields
    answers = [query.answered for query in first_head if query.answered is not None]
    return sums, [AnswerIntermediates(*(getattr(answer, name) for name in fields)) for answer in answers]


def _stack_rows(explanations: Sequence[Sequence[Explanation]], name: str, keys: int) -> np.ndarray:
    """Return a field of all explanations, (H, Tq, Tk), with zeros for keys after the query's step."""
    return np.array(
        [
            [np.pad(np.array(row := getattr(query, name), float), (0, keys - len(row))) for query in head]
            for head in explanations
        ]
    )


def _score_steps(
    layer: AttentionLayer, trace: AnswerTrace, heads: int, queries: int, keys: int
) -> list[ScoreStep]:
    """Return the intermediate vectors of the scores, each stored as compactly as possible."""
    rows = [read_layer_row(trace.insides, query) for query in range(queries)]
    prepared = rows[-1].key.float()
    pair_steps = [
        [[layer.score.steps(row.query[head].float(), prepared[head, key]) for key in range(keys)] for row in rows]
        for head in range(heads)
    ]
    arrays: list[np.ndarray] = []
    steps: list[ScoreStep] = []
    for name in pair_steps[0][0][0]:
        array = np.array([[[pair[name].detach().numpy() for pair in row] for row in head] for head in pair_steps])
        # The function detects from the values whether each vector depends on the query, the key or both, so
        # that a new score needs no declaration.
        pairs = combinations(range(len(arrays)), 2)
        products = (pair for pair in pairs if np.allclose(arrays[pair[0]] * arrays[pair[1]], array))
        factors = next(products, None)
        if factors is not None:
            steps.append(ScoreStep(name, None, "product", factors))
        elif (array == array[:, :, :1]).all():
            steps.append(ScoreStep(name, array[:, :, 0], "query"))
        elif (array == array[:, :1]).all():
            steps.append(ScoreStep(name, array[:, 0], "key"))
        else:
            steps.append(ScoreStep(name, array, "pair"))
        arrays.append(array)
    return steps


def _count_numbers(sums: Intermediates) -> int:
    """Return the number of intermediate values."""
    arrays = [
        array
        for layer in sums.layers.values()
        for array in (*vars(layer).values(), *(step.numbers for step in layer.steps))
    ]
    states = sum(len(answer.state) for answer in sums.answers)
    return states + sum(array.size for array in arrays if isinstance(array, np.ndarray))
