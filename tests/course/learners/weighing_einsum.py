import math

import torch


def score(query, key):
    return torch.einsum("bqd,bkd->bqk", query, key) / math.sqrt(query.size(-1))


def masked_softmax(scores, mask):
    scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights * mask


def attention(query, key, value, mask=None):
    scores = score(query, key)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = masked_softmax(scores, mask)
    return torch.einsum("bqk,bkd->bqd", weights, value), weights
