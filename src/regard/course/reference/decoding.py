"""Recurrent steps, searches and a loss, one number after the other.

Bahdanau et al. 2015, appendix A; Luong et al. 2015, section 3; Szegedy et al. 2016, section 7.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from regard.course.reference.attention import Array, dot, mixed, shares, times

Cell = Callable[[Array, Array], Array]
Step = Callable[[list[int]], Sequence[float]]


def bahdanau_step(
    previous: Array,
    state: Array,
    memory: Array,
    cell: Cell,
    w: Array,
    u: Array,
    v: Array,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """Return the next state (B, D) and the weights (B, T)."""
    states, found = [], []
    for row in range(len(state)):
        (asked,) = times([state[row].tolist()], w.tolist())
        scores = []
        for known in times(memory[row].tolist(), u.tolist()):
            scores.append(dot(v.tolist(), [math.tanh(a + b) for a, b in zip(asked, known, strict=True)]))
        weights = shares(scores, None if mask is None else mask[row].tolist())
        entering = previous[row].tolist() + mixed(weights, memory[row].tolist())
        states.append(cell(np.array([entering]), state[row : row + 1])[0])
        found.append(weights)
    return np.array(states), np.array(found)


def luong_step(
    previous: Array, state: Array, memory: Array, cell: Cell, w_a: Array, w_c: Array, mask: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return the attentional state (B, D), the next state (B, D) and the weights (B, T)."""
    outputs, states, found = [], [], []
    for row in range(len(state)):
        current = cell(previous[row : row + 1], state[row : row + 1])[0]
        keys = times(memory[row].tolist(), [list(column) for column in zip(*w_a.tolist(), strict=True)])
        scores = [dot(current.tolist(), key) for key in keys]
        weights = shares(scores, None if mask is None else mask[row].tolist())
        (mixture,) = times([mixed(weights, memory[row].tolist()) + current.tolist()], w_c.tolist())
        outputs.append([math.tanh(number) for number in mixture])
        states.append(current)
        found.append(weights)
    return np.array(outputs), np.array(states), np.array(found)


def greedy_search(step: Step, start: int, end: int, longest: int) -> list[int]:
    """Return the likeliest token after what stands there, again and again, up to `end` or `longest` tokens."""
    tokens = [start]
    while len(tokens) <= longest:
        chances = list(step(list(tokens)))
        tokens.append(max(range(len(chances)), key=lambda token: chances[token]))
        if tokens[-1] == end:
            break
    return tokens[1:]


def beam_search(
    step: Step, start: int, end: int, width: int, longest: int, alpha: float
) -> tuple[list[int], float]:
    """Return the best of the hypotheses that a beam of `width` keeps, and its log-probability over
    length^alpha.
    """
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(longest):
        found = []
        for total, tokens in beam:
            if tokens and tokens[-1] == end:
                found.append((total, tokens))
                continue
            for token, chance in enumerate(step([start, *tokens])):
                found.append((total + float(chance), [*tokens, token]))
        beam = sorted(found, key=lambda each: -each[0])[:width]
    total, tokens = max(beam, key=lambda each: each[0] / len(each[1]) ** alpha)
    return tokens, total / len(tokens) ** alpha


def label_smoothed_loss(logits: Array, target: Array, smoothing: float, padding: int = 0) -> float:
    """Return the mean cross-entropy in nats of logits (N, V) over the targets (N,) that are no padding."""
    total, count = 0.0, 0
    for row, right in zip(logits.tolist(), target.tolist(), strict=True):
        if right == padding:
            continue
        top = max(row)
        whole = top + math.log(sum(math.exp(number - top) for number in row))
        for token, number in enumerate(row):
            wanted = smoothing / len(row) + (1 - smoothing if token == right else 0)
            total -= wanted * (number - whole)
        count += 1
    return total / count
