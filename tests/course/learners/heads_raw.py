import torch
from torch import nn


class MHA(nn.Module):
    """Weights with three dimensions, and a weight that is applied from the left."""

    def __init__(self, width, heads):
        super().__init__()
        size = width // heads
        self.wq = nn.Parameter(torch.randn(heads, width, size))
        self.wk = nn.Parameter(torch.randn(heads, width, size))
        self.wv = nn.Parameter(torch.randn(heads, width, size))
        self.wo = nn.Parameter(torch.randn(width, width))

    def forward(self, q, k, v, mask=None):
        q = torch.einsum("btd,hde->bhte", q, self.wq)
        k = torch.einsum("btd,hde->bhte", k, self.wk)
        v = torch.einsum("btd,hde->bhte", v, self.wv)
        s = torch.einsum("bhie,bhje->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        w = s.softmax(-1)
        if mask is not None:
            w = w * mask[:, None]
        joined = torch.einsum("bhij,bhje->bihe", w, v).flatten(2)
        return torch.einsum("btd,ed->bte", joined, self.wo)
