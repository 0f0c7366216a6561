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
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(s, heads, width)) for _ in range(3))
        self.wo = nn.Parameter(torch.randn(heads, s, width))

    def forward(self, q, k, v, mask=None):
        q, k, v = (torch.einsum("btd,shd->bhts", x, w) for x, w in ((q, self.wq), (k, self.wk), (v, self.wv)))
        return torch.einsum("bhts,hsd->btd", attend(q, k, v, None if mask is None else mask[:, None]), self.wo)
