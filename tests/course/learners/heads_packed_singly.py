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
        self.qkv = nn.Linear(width, 3 * size, bias=False)

    def forward(self, q, k, v, m):
        s = self.qkv.out_features // 3
        return attend(self.qkv(q)[..., :s], self.qkv(k)[..., s : 2 * s], self.qkv(v)[..., 2 * s :], m)


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(width, width // heads) for _ in range(heads)])
        self.o = nn.Linear(width, width)

    def forward(self, q, k, v, mask=None):
        return self.o(torch.cat([h(q, k, v, mask) for h in self.heads], -1))
