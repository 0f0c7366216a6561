from torch import nn


class MultiHeadAttention(nn.Module):
    """One packed layer, which has query, key and value of the first head first."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)

    def part(self, x, number):
        packed = self.query_key_value(x).unflatten(-1, (self.heads, 3, -1))
        return packed[..., number, :].transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.part(query, 0), self.part(key, 1), self.part(value, 2)
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        w = s.softmax(-1)
        if mask is not None:
            w = w * mask[:, None]
        return self.dense((w @ v).transpose(1, 2).flatten(2))
