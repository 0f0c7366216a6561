"""The exercises on the logit lens, sinks, grokking and doubt, as plain loops."""

import math

import numpy as np

from tests.course.reference.attention_loops import Array, softmax_row


def logit_lens(states: Array, norm: Array, output: Array) -> Array:
    """Return the probabilities of all tokens for each layer and step."""
    result = []
    for layer in states.tolist():
        rows = []
        for state in layer:
            size = math.sqrt(sum(number * number for number in state) / len(state) + 1e-5)
            ready = [number / size * gain for number, gain in zip(state, norm.tolist(), strict=True)]
            logits = [sum(a * b for a, b in zip(ready, token, strict=True)) for token in output.tolist()]
            rows.append(softmax_row(logits))
        result.append(rows)
    return np.array(result)


def sink_softmax(scores: Array, sink: Array) -> Array:
    """Return a softmax over the keys and the sink, without the sink."""
    weights = [
        [[softmax_row([*row, own])[:-1] for row in head] for head, own in zip(heads, sink.tolist(), strict=True)]
        for heads in scores.tolist()
    ]
    return np.array(weights)


def auroc(doubts: Array, faulty: Array) -> Array:
    """Compare every faulty translation with every good one."""
    points, pairs = 0.0, 0
    for doubt, is_faulty in zip(doubts.tolist(), faulty.tolist(), strict=True):
        for other, also_faulty in zip(doubts.tolist(), faulty.tolist(), strict=True):
            if is_faulty and not also_faulty:
                pairs += 1
                points += 1.0 if doubt > other else 0.5 if doubt == other else 0.0
    return np.array(points / pairs)
