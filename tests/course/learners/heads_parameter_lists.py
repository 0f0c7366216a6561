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
        s = width // heads
        self.wq = nn.ParameterList([nn.Parameter(torch.randn(s, width)) for _ in range(heads)])
        self.wk = nn.ParameterList([nn.Parameter(torch.randn(s, width)) for _ in range(heads)])
        self.wv = nn.ParameterList([nn.Parameter(torch.randn(s, width)) for _ in range(heads)])
        self.wo = nn.ParameterList([nn.Parameter(torch.randn(s, width)) for _ in range(heads)])

    def forward(self, q, k, v, mask=None):
        return sum(
            attend(q @ a.T, k @ b.T, v @ c.T, mask) @ d for a, b, c, d in zip(self.wq, self.wk, self.wv, self.wo)
        )
