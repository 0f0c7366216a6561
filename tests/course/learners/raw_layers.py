import torch
import torch.nn.functional as F
from torch import nn


class EncoderLayer(nn.Module):
    """Raw parameters under short names, one packed projection, weights from the left."""

    def __init__(self, dim, n_heads, hidden_dim):
        super().__init__()
        self.h = n_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up = nn.Parameter(torch.randn(hidden_dim, dim))
        self.up_bias = nn.Parameter(torch.zeros(hidden_dim))
        self.down = nn.Parameter(torch.randn(dim, hidden_dim))
        self.down_bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None])
        x = self.ln_1(x + self.proj(a.transpose(1, 2).reshape(b, t, d)))
        return self.ln_2(x + F.linear(F.relu(F.linear(x, self.up, self.up_bias)), self.down, self.down_bias))


class DecoderLayer(nn.Module):
    def __init__(self, dim, n_heads, hidden_dim):
        super().__init__()
        self.attn1 = nn.MultiheadAttention(dim, n_heads, batch_first=True)
        self.attn2 = nn.MultiheadAttention(dim, n_heads, batch_first=True)
        self.n_heads = n_heads
        self.mlp = nn.Sequential(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, dim))
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(3)])

    def forward(self, x, memory, memory_mask=None):
        t = x.shape[1]
        x = self.norms[0](x + self.attn1(x, x, x, attn_mask=torch.ones(t, t).triu(1).bool())[0])
        m = None if memory_mask is None else ~memory_mask.repeat_interleave(self.n_heads, 0)
        x = self.norms[1](x + self.attn2(x, memory, memory, attn_mask=m)[0])
        return self.norms[2](x + self.mlp(x))
