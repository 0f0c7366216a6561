import numpy as np


def norm(x, g, s):
    mu = x.mean(axis=-1, keepdims=True)
    sigma = x.std(axis=-1, keepdims=True)
    return (x - mu) / np.sqrt(sigma**2 + 1e-5) * g + s


def heads_of(x, y, wq, wk, wv, wo, heads, mask):
    n = x.shape[-1] // heads
    result = 0
    for h in range(heads):
        c = slice(h * n, h * n + n)
        s = (x @ wq[:, c]) @ (y @ wk[:, c]).swapaxes(1, 2) / n**0.5
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        a = e / e.sum(-1, keepdims=True)
        result = result + a @ (y @ wv[:, c]) @ wo[c]
    return result


def encoder_layer(states, p, heads, mask=None):
    x = states
    x = norm(x + heads_of(x, x, p["w_q"], p["w_k"], p["w_v"], p["w_o"], heads, mask), p["gain_1"], p["shift_1"])
    f = np.maximum(x @ p["w_1"] + p["b_1"], 0) @ p["w_2"] + p["b_2"]
    return norm(x + f, p["gain_2"], p["shift_2"])


def decoder_layer(states, memory, p, heads, memory_mask=None):
    t = states.shape[1]
    causal = np.arange(t)[None, :, None] >= np.arange(t)[None, None, :]
    x = states
    own = heads_of(x, x, p["w_q"], p["w_k"], p["w_v"], p["w_o"], heads, causal)
    x = norm(x + own, p["gain_1"], p["shift_1"])
    cross = heads_of(x, memory, p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"], heads, memory_mask)
    x = norm(x + cross, p["gain_2"], p["shift_2"])
    f = np.maximum(x @ p["w_1"] + p["b_1"], 0) @ p["w_2"] + p["b_2"]
    return norm(x + f, p["gain_3"], p["shift_3"])


def transformer(source, target, p, heads, layers):
    def embed(tokens, table):
        d = table.shape[1]
        angle = np.arange(tokens.shape[1])[:, None] / 10000 ** (np.arange(0, d, 2) / d)
        pe = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(tokens.shape[1], d)
        return table[tokens] * d**0.5 + pe

    def part(prefix):
        return {k.removeprefix(prefix): v for k, v in p.items() if k.startswith(prefix)}

    real = (source != 0)[:, None, :]
    h = embed(source, p["source"])
    for i in range(layers):
        h = encoder_layer(h, part(f"encoder.{i}."), heads, real)
    x = embed(target, p["target"])
    for i in range(layers):
        x = decoder_layer(x, h, part(f"decoder.{i}."), heads, real)
    return x @ p["w_out"] + p["b_out"]
