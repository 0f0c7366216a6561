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


def auroc(doubts, faulty):
    bad, good = doubts[faulty == 1], doubts[faulty == 0]
    pairs = [(b > g) + 0.5 * (b == g) for b in bad for g in good]
    return sum(pairs) / (len(bad) * len(good))
