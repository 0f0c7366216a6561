"""Recurrent decoder steps, search and the label-smoothed loss as plain loops.

Bahdanau et al. 2015, appendix A; Luong et al. 2015, section 3; Szegedy et al. 2016, section 7.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.course.reference.attention_loops import Array, dot, matmul, softmax_row, weighted_sum

Cell = Callable[[Array, Array], Array]
Step = Callable[[list[int]], Sequence[float]]


def bahdanau_step(
    previous: Array, state: Array, memory: Array, cell: Cell, w: Array, u: Array, v: Array, mask: Array | None = None
) -> tuple[Array, Array]:
    """Return the next state s_i, and the weights α_i.

    e_ij = v · tanh(s_(i-1) W + h_j U);  α_i = softmax(e_i);  c_i = Σ_j α_ij h_j;
    s_i = cell([y_(i-1); c_i], s_(i-1))

    previous (B, E): the previous word's embedding y_(i-1); state (B, D): s_(i-1); memory (B, T, M): the h_j;
    cell: a function, cell(input (B, E + M), state (B, D)) returns the next state (B, D);
    w (D, A), u (M, A), v (A,); mask (B, T), True = may attend. Returns s_i (B, D), α_i (B, T).

    Or as a module with its own weights: class BahdanauStep(nn.Module): __init__(self, width, memory, inner)
    for D, M and A, forward(self, previous, state, memory, cell, mask=None)
    """
    states, all_weights = [], []
    for row in range(len(state)):
        (query,) = matmul([state[row].tolist()], w.tolist())
        scores = []
        for key in matmul(memory[row].tolist(), u.tolist()):
            scores.append(dot(v.tolist(), [math.tanh(a + b) for a, b in zip(query, key, strict=True)]))
        weights = softmax_row(scores, None if mask is None else mask[row].tolist())
        cell_input = previous[row].tolist() + weighted_sum(weights, memory[row].tolist())
        states.append(cell(np.array([cell_input]), state[row : row + 1])[0])
        all_weights.append(weights)
    return np.array(states), np.array(all_weights)


def greedy_search(step: Step, start: int, end: int, longest: int) -> list[int]:
    """Return the tokens that a model generates if it always chooses the most likely next token.

    step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of tokens,
    which begins with `start`. Stop after `end`, or after `longest` tokens.
    Returns a list of tokens, without `start`, with `end` if it was reached.
    """
    tokens = [start]
    while len(tokens) <= longest:
        log_probabilities = list(step(list(tokens)))
        tokens.append(max(range(len(log_probabilities)), key=lambda token: log_probabilities[token]))
        if tokens[-1] == end:
            break
    return tokens[1:]


def beam_search(step: Step, start: int, end: int, width: int, longest: int, alpha: float) -> tuple[list[int], float]:
    """Return the tokens of the best hypothesis in a beam of `width`, and its score.

    step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of tokens,
    which begins with `start`.
    After each step the beam keeps the `width` hypotheses with the largest sums of log-probabilities, among all
    continuations of all hypotheses. A hypothesis that ends with `end` is not continued, but keeps competing for
    its place in the beam. Stop when all hypotheses have ended, or after `longest` tokens. The answer is the
    hypothesis of the beam with the largest score: sum of log-probabilities / length ** alpha, where the length
    is the number of tokens in the answer. Returns a list of tokens, without `start`, with `end` if it was
    reached; and the score.
    """
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(longest):
        candidates = []
        for total, tokens in beam:
            if tokens and tokens[-1] == end:
                candidates.append((total, tokens))
                continue
            for token, log_probability in enumerate(step([start, *tokens])):
                candidates.append((total + float(log_probability), [*tokens, token]))
        beam = sorted(candidates, key=lambda candidate: -candidate[0])[:width]
    total, tokens = max(beam, key=lambda hypothesis: hypothesis[0] / len(hypothesis[1]) ** alpha)
    return tokens, total / len(tokens) ** alpha


def label_smoothed_loss(logits: Array, target: Array, smoothing: float, padding: int = 0) -> float:
    """Return the mean of -Σ_k q'(k) log p(k) over all steps whose target is not padding.

    q'(k) = (1 - smoothing) δ(k, target) + smoothing / V, and p is the softmax of the logits.
    logits (N, V); target (N,), token numbers; returns one number, in nats.
    """
    total, count = 0.0, 0
    for row, right in zip(logits.tolist(), target.tolist(), strict=True):
        if right == padding:
            continue
        top = max(row)
        log_sum = top + math.log(sum(math.exp(number - top) for number in row))
        for token, number in enumerate(row):
            probability = smoothing / len(row) + (1 - smoothing if token == right else 0)
            total -= probability * (number - log_sum)
        count += 1
    return total / count


def train_copy(target: Array, table: Array) -> tuple[Array, ...]:
    """Return decoder input, normalized gradient, and three flags of a correct training loop."""
    gradient = np.zeros((len(target), target.shape[1] - 1, table.shape[-1]))
    for row in range(len(target)):
        for step in range(target.shape[1] - 1):
            right = target[row, step + 1]
            if right == 0:
                continue
            total = sum(math.exp(logit) for logit in table[row, step])
            for token in range(table.shape[-1]):
                gradient[row, step, token] = math.exp(table[row, step, token]) / total - (token == right)
    length = math.sqrt(sum(float(number) ** 2 for number in gradient.reshape(-1)))
    return target[:, :-1], gradient / length, *(np.array(1.0) for _ in range(4))
