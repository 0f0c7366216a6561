import numpy as np


def bahdanau_step(y, s, h, cell, W, U, v, mask=None):
    B, T, M = h.shape
    alpha = np.zeros((B, T))
    for b in range(B):
        e = np.array([v @ np.tanh(s[b] @ W + h[b, j] @ U) for j in range(T)])
        if mask is not None:
            e[~mask[b]] = -np.inf
        e = np.exp(e - e.max())
        alpha[b] = e / e.sum()
    c = np.array([alpha[b] @ h[b] for b in range(B)])
    return cell(np.hstack([y, c]), s), alpha
