from collections import Counter
from itertools import pairwise

import numpy as np


def cached_causal_mask(queries, keys):
    return np.arange(keys)[None, :] <= np.arange(keys - queries, keys)[:, None]


def cached_step(state, keys, values, w_q, w_k, w_v):
    q, k, v = state @ w_q, state @ w_k, state @ w_v
    keys = np.concatenate([keys, k[:, None]], axis=1)
    values = np.concatenate([values, v[:, None]], axis=1)
    scores = (keys @ q[:, :, None])[:, :, 0] / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    a = e / e.sum(axis=-1, keepdims=True)
    return (a[:, None] @ values)[:, 0], keys, values


def grouped_attention(query, key, value):
    share = query.shape[1] // key.shape[1]
    k, v = np.repeat(key, share, axis=1), np.repeat(value, share, axis=1)
    scores = query @ k.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def rms_norm(x, gain):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * gain


def swiglu(x, w_gate, w_up, w_down):
    g = x @ w_gate
    gate = g / (1 + np.exp(-g))
    return (gate * (x @ w_up)) @ w_down


def merge(tokens, pair, new):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def learn_merges(tokens, count, first):
    text = [int(t) for t in tokens]
    pairs = []
    for n in range(count):
        counts = Counter(pairwise(text))
        best = max(counts, key=counts.get)
        pairs.append(best)
        text = merge(text, best, first + n)
    return pairs, text


def apply_merges(tokens, merges, first):
    text = [int(t) for t in tokens]
    for n, (a, b) in enumerate(merges):
        text = merge(text, (int(a), int(b)), first + n)
    return text


def next_token_probabilities(logits, temperature, top_k, top_p):
    z = logits / temperature
    order = np.argsort(-z)
    keep = order[:top_k]
    p = np.exp(z[keep] - z[keep].max())
    p = p / p.sum()
    n = np.searchsorted(np.cumsum(p), top_p - 1e-12) + 1
    out = np.zeros(len(z))
    out[keep[:n]] = p[:n] / p[:n].sum()
    return out


def induction_score(weights, tokens):
    found = []
    last = {}
    for t, token in enumerate(tokens):
        if int(token) in last:
            found.append(weights[t, last[int(token)] + 1])
        last[int(token)] = t
    return np.mean(found)


def patching_effect(clean, corrupt, patched):
    top, bottom = clean.mean(), corrupt.mean()
    return (patched.mean(axis=-1) - bottom) / (top - bottom)


def attention_rollout(weights):
    total = np.eye(weights.shape[-1])
    for layer in weights:
        total = (0.5 * layer + 0.5 * np.eye(len(layer))) @ total
    return total


def online_softmax(scores, value, block):
    maxima, totals = [], []
    m, total, acc = -np.inf * np.ones(scores.shape[:2]), 0.0, 0.0
    for s, v in zip(
        np.array_split(scores, range(block, scores.shape[2], block), 2),
        np.array_split(value, range(block, scores.shape[2], block), 1),
    ):
        m, old = np.maximum(m, s.max(2)), m
        p = np.exp(s - m[:, :, None])
        total = total * np.exp(old - m) + p.sum(2)
        acc = acc * np.exp(old - m)[:, :, None] + p @ v
        maxima.append(m)
        totals.append(total)
    return acc / total[:, :, None], np.array(maxima), np.array(totals)
