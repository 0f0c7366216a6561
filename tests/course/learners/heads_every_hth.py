from torch import nn


class MultiHeadAttention(nn.Module):
    """Each head takes every h-th column. The heads are joined in the same way."""

    def __init__(self, emb, heads):
        super().__init__()
        self.h = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(emb, emb, bias=False) for _ in range(3))
        self.unify = nn.Linear(emb, emb)

    def split(self, x):
        return x.reshape(x.shape[0], x.shape[1], -1, self.h).permute(0, 3, 1, 2)

    def join(self, x):
        return x.permute(0, 2, 3, 1).flatten(2)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.split(self.to_q(query)), self.split(self.to_k(key)), self.split(self.to_v(value))
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        w = s.softmax(-1)
        if mask is not None:
            w = w * mask[:, None]
        return self.unify(self.join(w @ v))
