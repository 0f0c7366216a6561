from torch import nn


class MultiHeadAttention(nn.Module):
    """Layers whose names do not show their role, created in another order: output, values, keys, queries."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.d, self.c, self.b, self.a = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        layers = ((self.a, query), (self.b, key), (self.c, value))
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer, x in layers)
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        w = s.softmax(-1)
        if mask is not None:
            w = w * mask[:, None]
        return self.d((w @ v).transpose(1, 2).flatten(2))
