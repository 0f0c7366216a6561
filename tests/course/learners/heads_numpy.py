import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, heads, mask=None):
    size = query.shape[-1] // heads
    outputs = []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        q = query @ w_q[:, part]
        k = key @ w_k[:, part]
        v = value @ w_v[:, part]
        scores = np.einsum("bid,bjd->bij", q, k) / np.sqrt(size)
        if mask is not None:
            scores = np.where(mask, scores, -1e9)
        weights = softmax(scores)
        if mask is not None:
            weights = weights * mask
        outputs.append(weights @ v)
    return np.concatenate(outputs, axis=-1) @ w_o
