import torch
import torch.nn.functional as F


def cached_causal_mask(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def cached_step(state, keys, values, w_q, w_k, w_v):
    query = (state @ w_q).unsqueeze(1)
    keys = torch.cat([keys, (state @ w_k).unsqueeze(1)], 1)
    values = torch.cat([values, (state @ w_v).unsqueeze(1)], 1)
    weights = F.softmax(query @ keys.mT / keys.size(-1) ** 0.5, -1)
    return (weights @ values).squeeze(1), keys, values


def grouped_attention(query, key, value):
    b, h, t, d = query.shape
    g = key.size(1)
    query = query.view(b, g, h // g, t, d)
    scores = torch.einsum("bgrid,bgjd->bgrij", query, key) / d**0.5
    return torch.einsum("bgrij,bgjd->bgrid", scores.softmax(-1), value).reshape(b, h, t, d)


def rms_norm(states, gain):
    return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def swiglu(states, w_gate, w_up, w_down):
    return (F.silu(states @ w_gate) * (states @ w_up)) @ w_down


def next_token_probabilities(logits, temperature, top_k, top_p):
    logits = logits / temperature
    values, indices = logits.topk(top_k)
    p = values.softmax(-1)
    p = torch.where(p.cumsum(-1) - p < top_p, p, torch.zeros_like(p))
    return torch.zeros_like(logits).scatter(0, indices, p / p.sum())


def induction_score(weights, tokens):
    same = (tokens[:, None] == tokens[None, :]).tril(-1)
    steps = same.any(1).nonzero().flatten()
    last = len(tokens) - 1 - same[steps].flip(1).int().argmax(1)
    return weights[steps, last + 1].mean()


def patching_effect(clean, corrupt, patched):
    return (patched - corrupt).mean(-1) / (clean - corrupt).mean()


def attention_rollout(weights):
    identity = torch.eye(weights.size(-1))
    result = identity
    for layer in weights:
        result = torch.matmul((layer + identity) / 2, result)
    return result


def online_softmax(scores, value, block):
    m = torch.full(scores.shape[:2], -torch.inf, dtype=scores.dtype)
    total, context, maxima, totals = torch.zeros_like(m), 0.0, [], []
    for s, v in zip(scores.split(block, 2), value.split(block, 1)):
        new = torch.maximum(m, s.amax(2))
        powers, factor = (s - new[..., None]).exp(), (m - new).exp()
        total, context = factor * total + powers.sum(2), factor[..., None] * context + powers @ v
        m = new
        maxima.append(m)
        totals.append(total)
    return context / total[..., None], torch.stack(maxima), torch.stack(totals)
