import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_k = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_v = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_o = nn.LazyLinear(num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def forward(self, queries, keys, values, mask=None):
        q, k, v = (self.transpose_qkv(w(x)) for w, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values)))
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        if mask is not None:
            mask = torch.repeat_interleave(mask, self.num_heads, dim=0)
            scores = scores.masked_fill(~mask, -1e6)
        weights = nn.functional.softmax(scores, dim=-1)
        if mask is not None:
            weights = weights * mask
        out = torch.bmm(weights, v)
        out = out.reshape(-1, self.num_heads, out.shape[1], out.shape[2]).permute(0, 2, 1, 3)
        return self.W_o(out.reshape(out.shape[0], out.shape[1], -1))


class PositionWiseFFN(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.dense1 = nn.LazyLinear(inner)
        self.dense2 = nn.LazyLinear(width)

    def forward(self, X):
        return self.dense2(self.dense1(X).relu())


feed_forward = PositionWiseFFN
