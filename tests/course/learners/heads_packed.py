import math

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        b, tq, d = query.shape
        h = self.num_heads
        q = self.q_proj(query)
        k = self.kv_proj(key)[..., :d]
        v = self.kv_proj(value)[..., d:]
        q, k, v = (x.unflatten(-1, (h, d // h)).transpose(1, 2) for x in (q, k, v))
        scores = torch.matmul(q, k.mT) / math.sqrt(d // h)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)
        weights = self.dropout(scores.softmax(dim=-1))
        if mask is not None:
            weights = weights.masked_fill(~mask[:, None], 0)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights
