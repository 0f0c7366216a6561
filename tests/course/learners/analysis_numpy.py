import numpy as np


def logit_lens(states, norm, output):
    x = states / np.sqrt((states**2).mean(-1, keepdims=True) + 1e-5) * norm
    z = x @ output.T
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sink_softmax(scores, sink):
    a = sink[None, :, None, None]
    m = np.maximum(scores.max(-1, keepdims=True), a)
    e = np.exp(scores - m)
    return e / (np.exp(a - m) + e.sum(-1, keepdims=True))


def fourier_power(embeddings):
    p = len(embeddings)
    f = np.fft.fft(embeddings, axis=0)
    power = (np.abs(f) ** 2).sum(1)
    out = power[: p // 2 + 1].copy()
    for k in range(1, (p + 1) // 2):
        out[k] += power[p - k]
    return out / out.sum()


def distance_from_uniform(attention):
    mass = attention.mean(axis=0).mean(axis=0)
    return np.abs(mass - 1 / mass.size).sum() / 2


def auroc(doubts, faulty):
    bad, good = doubts[faulty == 1], doubts[faulty == 0]
    pairs = [(b > g) + 0.5 * (b == g) for b in bad for g in good]
    return sum(pairs) / (len(bad) * len(good))
