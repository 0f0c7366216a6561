import numpy as np


def score(Q, K):
    d = Q.shape[-1]
    return Q @ K.transpose(0, 2, 1) / np.sqrt(d)


def masked_softmax(s, mask):
    s = np.where(mask, s, -1e30)
    s = s - s.max(axis=-1, keepdims=True)
    e = np.exp(s) * mask
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def attention(Q, K, V, mask=None):
    if mask is None:
        mask = np.ones((Q.shape[0], Q.shape[1], K.shape[1]), dtype=bool)
    A = masked_softmax(score(Q, K), mask)
    return A @ V, A
