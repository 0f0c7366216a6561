import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.key = nn.Linear(dim, size, bias=False)
        self.query = nn.Linear(dim, size, bias=False)
        self.value = nn.Linear(dim, size, bias=False)

    def forward(self, q, k, v, mask):
        s = self.query(q) @ self.key(k).transpose(1, 2) * self.key.out_features**-0.5
        if mask is not None:
            s = s.masked_fill(mask.logical_not(), -1e10)
        w = torch.softmax(s, 2)
        if mask is not None:
            w = w * mask
        return w @ self.value(v)


class MultiHead(nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        self.heads = nn.ModuleList([Head(dim, dim // heads) for _ in range(heads)])
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, q, k, v, mask=None):
        return self.proj(torch.cat([head(q, k, v, mask) for head in self.heads], dim=-1))
