import math

import numpy as np


def score(q, k):
    out = np.zeros((len(q), q.shape[1], k.shape[1]))
    for b in range(len(q)):
        for i in range(q.shape[1]):
            for j in range(k.shape[1]):
                out[b, i, j] = sum(q[b, i] * k[b, j]) / math.sqrt(q.shape[2])
    return out


def masked_softmax(scores, mask):
    out = np.zeros_like(scores)
    for b in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            keys = [j for j in range(scores.shape[2]) if mask[b, i, j]]
            if not keys:
                continue
            biggest = max(scores[b, i, j] for j in keys)
            bottom = sum(math.exp(scores[b, i, j] - biggest) for j in keys)
            for j in keys:
                out[b, i, j] = math.exp(scores[b, i, j] - biggest) / bottom
    return out


def attention(q, k, v, mask=None):
    s = score(q, k)
    w = masked_softmax(s, np.ones(s.shape, bool) if mask is None else mask)
    context = np.zeros((len(q), q.shape[1], v.shape[2]))
    for b in range(len(q)):
        for i in range(q.shape[1]):
            for j in range(k.shape[1]):
                context[b, i] += w[b, i, j] * v[b, j]
    return context, w
