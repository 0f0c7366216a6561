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


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.w = nn.Parameter(torch.randn(4, width, width))

    def forward(self, q, k, v, mask=None):
        q, k, v = ((x @ w).unflatten(-1, (self.heads, -1)).transpose(1, 2) for x, w in zip((q, k, v), self.w))
        return attend(q, k, v, None if mask is None else mask[:, None]).transpose(1, 2).flatten(2) @ self.w[3]
