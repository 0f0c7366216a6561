import torch
from torch import nn


def attend(q, k, v, mask):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -1e9)
    w = s.softmax(-1)
    if mask is not None:
        w = w * mask
    return w @ v


class Head(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.q = nn.Linear(width, size, bias=False)
        self.k = nn.Linear(width, size, bias=False)
        self.v = nn.Linear(width, size, bias=False)
        self.o = nn.Linear(size, width, bias=False)

    def forward(self, q, k, v, m):
        return self.o(attend(self.q(q), self.k(k), self.v(v), m))


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(width, width // heads) for _ in range(heads)])

    def forward(self, q, k, v, mask=None):
        return sum(h(q, k, v, mask) for h in self.heads)
