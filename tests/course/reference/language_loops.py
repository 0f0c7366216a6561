"""Causal masks, caches, subwords, sampling and explanations as plain loops."""

import math
from collections.abc import Sequence

import numpy as np

from tests.course.reference.attention_loops import Array, dot, matmul, softmax_row, weighted_sum


def cached_causal_mask(queries: int, keys: int) -> Array:
    """Return the causal mask of the last queries of a text."""
    return np.array([[key <= keys - queries + query for key in range(keys)] for query in range(queries)])


def cached_step(state: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array) -> tuple[Array, ...]:
    """Return the context of a new token, and the longer caches."""
    contexts, new_keys, new_values = [], [], []
    for row, one in enumerate(state.tolist()):
        query, key, value = (matmul([one], w.tolist())[0] for w in (w_q, w_k, w_v))
        all_keys, all_values = [*keys[row].tolist(), key], [*values[row].tolist(), value]
        weights = softmax_row([dot(query, other) / math.sqrt(len(query)) for other in all_keys])
        contexts.append(weighted_sum(weights, all_values))
        new_keys.append(all_keys)
        new_values.append(all_values)
    return np.array(contexts), np.array(new_keys), np.array(new_values)


def grouped_attention(query: Array, key: Array, value: Array) -> Array:
    """Return the contexts of heads that share keys and values."""
    result = np.zeros(query.shape)
    share = query.shape[1] // key.shape[1]
    for b in range(query.shape[0]):
        for head in range(query.shape[1]):
            keys, values = key[b, head // share].tolist(), value[b, head // share].tolist()
            for step, one in enumerate(query[b, head].tolist()):
                weights = softmax_row([dot(one, other) / math.sqrt(len(one)) for other in keys])
                result[b, head, step] = weighted_sum(weights, values)
    return result


def rms_norm(states: Array, gain: Array) -> Array:
    """Return each step divided by its root mean square."""
    result = np.zeros(states.shape)
    for place in np.ndindex(*states.shape[:2]):
        step = states[place].tolist()
        size = math.sqrt(sum(number * number for number in step) / len(step) + 1e-5)
        result[place] = [number / size * factor for number, factor in zip(step, gain.tolist(), strict=True)]
    return result


def swiglu(states: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """Return the gated feed-forward network."""
    result = np.zeros(states.shape)
    for place in np.ndindex(*states.shape[:2]):
        step = [states[place].tolist()]
        gates, ups = matmul(step, w_gate.tolist())[0], matmul(step, w_up.tolist())[0]
        inner = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(gates, ups, strict=True)]
        result[place] = matmul([inner], w_down.tolist())[0]
    return result


def _replace(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    result: list[int] = []
    skip = False
    for index, token in enumerate(tokens):
        if skip:
            skip = False
        elif index + 1 < len(tokens) and (token, tokens[index + 1]) == pair:
            result.append(new)
            skip = True
        else:
            result.append(token)
    return result


def learn_merges(tokens: Array, count: int, first: int) -> tuple[Array, Array]:
    """Return the merges of byte-pair encoding, and the text after them."""
    text, merges = tokens.tolist(), []
    for number in range(count):
        best, most = (-1, -1), 0
        for index in range(len(text) - 1):
            pair = (text[index], text[index + 1])
            times = sum((text[other], text[other + 1]) == pair for other in range(len(text) - 1))
            if times > most:
                best, most = pair, times
        merges.append(best)
        text = _replace(text, best, first + number)
    return np.array(merges), np.array(text)


def apply_merges(tokens: Array, merges: Array, first: int) -> Array:
    """Return a text after learned merges."""
    text = tokens.tolist()
    for number, (left, right) in enumerate(merges.tolist()):
        text = _replace(text, (left, right), first + number)
    return np.array(text)


def next_token_probabilities(logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    """Return the probabilities of the tokens that sampling keeps."""
    heated = [logit / temperature for logit in logits.tolist()]
    ranked = sorted(range(len(heated)), key=lambda token: -heated[token])[:top_k]
    weights = softmax_row([heated[token] for token in ranked])
    kept, total = [], 0.0
    for token, weight in zip(ranked, weights, strict=True):
        if total >= top_p:
            break
        kept.append((token, weight))
        total += weight
    result = [0.0] * len(heated)
    for token, weight in kept:
        result[token] = weight / total
    return np.array(result)


def induction_score(weights: Array, tokens: Sequence[int] | Array) -> Array:
    """Return the mean weight of the tokens after earlier occurrences."""
    found = []
    for step in range(len(tokens)):
        for earlier in range(step - 1, -1, -1):
            if tokens[earlier] == tokens[step]:
                found.append(float(weights[step][earlier + 1]))
                break
    return np.array(sum(found) / len(found))


def patching_effect(clean: Array, corrupt: Array, patched: Array) -> Array:
    """Return the restored fraction of each head."""
    top, bottom = sum(clean.tolist()) / len(clean), sum(corrupt.tolist()) / len(corrupt)
    layers = [[(sum(logits) / len(logits) - bottom) / (top - bottom) for logits in layer] for layer in patched.tolist()]
    return np.array(layers)


def attention_rollout(weights: Array) -> Array:
    """Return the product of all layers with their residual connections."""
    size = weights.shape[-1]
    product = [[float(row == column) for column in range(size)] for row in range(size)]
    for layer in weights.tolist():
        mixed = [
            [(number + (row == column)) / 2 for column, number in enumerate(line)] for row, line in enumerate(layer)
        ]
        product = matmul(mixed, product)
    return np.array(product)


def online_softmax(scores: Array, value: Array, block: int) -> tuple[Array, ...]:
    """Compute the whole softmax of each row, and the maximum and the sum of each row's beginning."""
    ends = [min(end, scores.shape[2]) for end in range(block, scores.shape[2] + block, block)]
    maxima = [[[max(row[:end]) for row in rows] for rows in scores.tolist()] for end in ends]
    totals = [
        [[sum(math.exp(s - max(row[:end])) for s in row[:end]) for row in rows] for rows in scores.tolist()]
        for end in ends
    ]
    context = [
        [
            [
                sum(math.exp(s - max(row)) * v for s, v in zip(row, column, strict=True)) / total
                for column in zip(*values, strict=True)
            ]
            for row, total in zip(rows, sums, strict=True)
        ]
        for rows, values, sums in zip(scores.tolist(), value.tolist(), totals[-1], strict=True)
    ]
    return np.array(context), np.array(maxima), np.array(totals)
