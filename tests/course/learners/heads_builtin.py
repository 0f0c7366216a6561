import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)
        self.heads = heads

    def forward(self, query, key, value, mask=None):
        if mask is None:
            return self.inner(query, key, value)[0]
        nothing = ~mask.any(-1, keepdim=True)
        hidden = (~mask & ~nothing).repeat_interleave(self.heads, 0)
        found, _ = self.inner(query, key, value, attn_mask=hidden)
        return torch.where(nothing, self.inner.out_proj.bias, found)
