import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=False)
        return self.gamma * (x - mean) / torch.sqrt(variance + self.eps) + self.beta


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, y, mask=None):
        size = x.shape[-1] // self.heads
        q, k, v = self.query(x), self.key(y), self.value(y)
        q, k, v = (t.reshape(t.shape[0], t.shape[1], self.heads, size).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(size)
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
        heads = scores.softmax(-1) @ v
        return self.out(heads.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.first = nn.Linear(width, inner)
        self.second = nn.Linear(inner, width)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed_forward = FeedForward(width, inner)
        self.norm1 = LayerNorm(width)
        self.norm2 = LayerNorm(width)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, x, mask))
        return self.norm2(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.self_attention = Attention(width, heads)
        self.cross_attention = Attention(width, heads)
        self.feed_forward = FeedForward(width, inner)
        self.norm1 = LayerNorm(width)
        self.norm2 = LayerNorm(width)
        self.norm3 = LayerNorm(width)

    def forward(self, x, memory, memory_mask=None):
        steps = x.shape[1]
        seen = torch.ones(steps, steps, dtype=torch.bool).tril()
        seen = seen.expand(len(x), -1, -1)
        x = self.norm1(x + self.self_attention(x, x, seen))
        x = self.norm2(x + self.cross_attention(x, memory, memory_mask))
        return self.norm3(x + self.feed_forward(x))


def waves(length, width):
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class Embedding(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.table = nn.Embedding(size, width)

    def forward(self, tokens):
        x = self.table(tokens) * math.sqrt(self.table.embedding_dim)
        return x + waves(x.shape[1], x.shape[2])


class Transformer(nn.Module):
    def __init__(self, source_size, target_size, width, heads, inner, layers):
        super().__init__()
        self.source = Embedding(source_size, width)
        self.target = Embedding(target_size, width)
        self.encoder = nn.ModuleList([EncoderLayer(width, heads, inner) for _ in range(layers)])
        self.decoder = nn.ModuleList([DecoderLayer(width, heads, inner) for _ in range(layers)])
        self.generator = nn.Linear(width, target_size)

    def forward(self, source, target):
        words = source != 0
        memory = self.source(source)
        for layer in self.encoder:
            memory = layer(memory, words[:, None, :].expand(-1, source.shape[1], -1))
        x = self.target(target)
        for layer in self.decoder:
            x = layer(x, memory, words[:, None, :].expand(-1, target.shape[1], -1))
        return self.generator(x)
