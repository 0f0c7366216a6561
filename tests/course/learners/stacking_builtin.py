import math

import torch
from torch import nn


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, heads, inner, batch_first=True)
        self.heads = heads

    def forward(self, states, mask=None):
        hidden = None if mask is None else ~mask.repeat_interleave(self.heads, 0)
        return self.layer(states, src_mask=hidden)


class DecoderLayer(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, batch_first=True)
        self.nhead = nhead

    def forward(self, x, memory, memory_mask=None):
        future = torch.ones(x.size(1), x.size(1)).triu(1).bool()
        hidden = None if memory_mask is None else ~memory_mask.repeat_interleave(self.nhead, 0)
        return self.layer(x, memory, tgt_mask=future, memory_mask=hidden)


class Transformer(nn.Module):
    def __init__(self, src_vocab_size, tgt_vocab_size, d_model, nhead, dim_feedforward, num_layers):
        super().__init__()
        self.src_embed = nn.Embedding(src_vocab_size, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, d_model)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, batch_first=True),
            num_layers,
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, batch_first=True), num_layers
        )
        self.fc = nn.Linear(d_model, tgt_vocab_size)

    def embed(self, tokens, table):
        d = table.embedding_dim
        place = torch.arange(tokens.size(1))[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        return table(tokens) * math.sqrt(d) + torch.stack([place.sin(), place.cos()], -1).flatten(1)

    def forward(self, source, target):
        padding = source == 0
        memory = self.encoder(self.embed(source, self.src_embed), src_key_padding_mask=padding)
        future = torch.ones(target.size(1), target.size(1)).triu(1).bool()
        x = self.decoder(self.embed(target, self.tgt_embed), memory, tgt_mask=future, memory_key_padding_mask=padding)
        return self.fc(x)
