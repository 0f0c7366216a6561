"""Files in the style of Dive into Deep Learning: `transpose_qkv`, `AddNorm`, blocks of modules."""

from tests.course.people.submission import Submission, edit

ATTENTION = """
import math
import torch
from torch import nn


def masked_softmax(X, mask):
    if mask is None:
        return nn.functional.softmax(X, dim=-1)
    X = X.masked_fill(~mask, -1e6)
    weights = nn.functional.softmax(X, dim=-1)
    return weights * mask.any(dim=-1, keepdim=True)


class DotProductAttention(nn.Module):
    def __init__(self, dropout=0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, mask=None):
        d = queries.shape[-1]
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(d)
        self.attention_weights = masked_softmax(scores, mask)
        return torch.bmm(self.dropout(self.attention_weights), values), self.attention_weights
"""

HEADS = (
    ATTENTION.replace(", self.attention_weights\n", "\n")
    + """

class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.1, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        X = X.permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
        X = X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys, values, mask=None):
        queries = self.transpose_qkv(self.W_q(queries))
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        if mask is not None:
            mask = torch.repeat_interleave(mask, repeats=self.num_heads, dim=0)
        output = self.attention(queries, keys, values, mask)
        return self.W_o(self.transpose_output(output))
"""
)

ENCODER = (
    HEADS
    + """

class PositionWiseFFN(nn.Module):
    def __init__(self, num_hiddens, ffn_num_hiddens):
        super().__init__()
        self.dense1 = nn.Linear(num_hiddens, ffn_num_hiddens)
        self.relu = nn.ReLU()
        self.dense2 = nn.Linear(ffn_num_hiddens, num_hiddens)

    def forward(self, X):
        return self.dense2(self.relu(self.dense1(X)))


class AddNorm(nn.Module):
    def __init__(self, norm_shape, dropout=0.1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm(norm_shape)

    def forward(self, X, Y):
        return self.ln(self.dropout(Y) + X)


class EncoderLayer(nn.Module):
    def __init__(self, num_hiddens, num_heads, ffn_num_hiddens, dropout=0.1):
        super().__init__()
        self.attention = MultiHeadAttention(num_hiddens, num_heads, dropout)
        self.addnorm1 = AddNorm(num_hiddens, dropout)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_num_hiddens)
        self.addnorm2 = AddNorm(num_hiddens, dropout)

    def forward(self, X, mask=None):
        Y = self.addnorm1(X, self.attention(X, X, X, mask))
        return self.addnorm2(Y, self.ffn(Y))
"""
)

BAHDANAU = """
import torch
from torch import nn


class BahdanauStep(nn.Module):
    def __init__(self, width, memory, inner):
        super().__init__()
        self.W_q = nn.Linear(width, inner, bias=False)
        self.W_k = nn.Linear(memory, inner, bias=False)
        self.w_v = nn.Linear(inner, 1, bias=False)

    def forward(self, previous, state, memory, cell, mask=None):
        queries, keys = self.W_q(state), self.W_k(memory)
        features = torch.tanh(queries.unsqueeze(1) + keys)
        scores = self.w_v(features).squeeze(-1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e6)
        attention_weights = nn.functional.softmax(scores, dim=-1)
        context = torch.bmm(attention_weights.unsqueeze(1), memory).squeeze(1)
        x = torch.cat((previous, context), dim=-1)
        return cell(x, state), attention_weights
"""

POSITIONS = """
import torch


def PositionalEncoding(max_len, num_hiddens):
    P = torch.zeros((max_len, num_hiddens))
    X = torch.arange(max_len, dtype=torch.float32).reshape(-1, 1) / torch.pow(
        10000, torch.arange(0, num_hiddens, 2, dtype=torch.float32) / num_hiddens)
    P[:, 0::2] = torch.sin(X)
    P[:, 1::2] = torch.cos(X)
    return P
"""

TRAIN = """
import torch
from torch import nn


def train_copy(net, batches):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    net.train()
    for X, Y in batches:
        optimizer.zero_grad()
        dec_input, labels = Y[:, :-1], Y[:, 1:]
        Y_hat = net(X, dec_input)
        mask = labels != 0
        l = nn.functional.cross_entropy(Y_hat.permute(0, 2, 1), labels, reduction='none')
        l = (l * mask).sum() / mask.sum()
        l.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
"""

RIGHT = {
    "heads": Submission("multi_head_attention", HEADS),
    "encoder": Submission("encoder_layer", ENCODER),
    "additive": Submission("bahdanau_step", BAHDANAU),
    "positions": Submission(
        "sinusoidal_positions", POSITIONS.replace("PositionalEncoding", "sinusoidal_positions")
    ),
    "training": Submission("train_copy", TRAIN),
}
WRONG = {
    "reshape without transpose": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            (
                "        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)\n"
                "        X = X.permute(0, 2, 1, 3)\n        return X.reshape(-1, X.shape[2], X.shape[3])",
                "        return X.reshape(X.shape[0] * self.num_heads, X.shape[1], -1)",
            ),
            (
                "        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])\n"
                "        X = X.permute(0, 2, 1, 3)\n        return X.reshape(X.shape[0], X.shape[1], -1)",
                "        return X.reshape(X.shape[0] // self.num_heads, X.shape[1], -1)",
            ),
        ),
        ("the heads are cut without a transpose, on both sides",),
    ),
    "mask repeated in the wrong order": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            ("torch.repeat_interleave(mask, repeats=self.num_heads, dim=0)", "mask.repeat(self.num_heads, 1, 1)"),
        ),
        ("the masks of the batch are given to wrong sequences",),
    ),
    "no output projection": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            ("        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)\n", ""),
            ("self.W_o(self.transpose_output(output))", "self.transpose_output(output)"),
        ),
        ("no output projection",),
    ),
    "residual after the norm": Submission(
        "encoder_layer",
        edit(ENCODER, ("self.ln(self.dropout(Y) + X)", "self.ln(self.dropout(Y)) + X")),
        ("the residual is added after the norm",),
    ),
    "the first norm twice": Submission(
        "encoder_layer",
        edit(ENCODER, ("return self.addnorm2(Y, self.ffn(Y))", "return self.addnorm1(Y, self.ffn(Y))")),
        ("the first norm is used twice",),
    ),
    "activation after the second layer": Submission(
        "encoder_layer",
        edit(ENCODER, ("self.dense2(self.relu(self.dense1(X)))", "self.relu(self.dense2(self.dense1(X)))")),
        ("ReLU after the second layer",),
    ),
    "no tanh": Submission(
        "bahdanau_step",
        edit(
            BAHDANAU,
            (
                "torch.bmm(attention_weights.unsqueeze(1), memory).squeeze(1)",
                "torch.bmm(attention_weights.unsqueeze(1), memory).squeeze(1)",
            ),
            ("torch.tanh(queries.unsqueeze(1) + keys)", "queries.unsqueeze(1) + keys"),
        ),
        ("no tanh",),
    ),
    "context first": Submission(
        "bahdanau_step",
        edit(BAHDANAU, ("torch.cat((previous, context), dim=-1)", "torch.cat((context, previous), dim=-1)")),
        ("the context stands before the embedding",),
    ),
    "positions from one": Submission(
        "sinusoidal_positions",
        edit(
            POSITIONS,
            ("torch.arange(max_len, dtype", "torch.arange(1, max_len + 1, dtype"),
            ("torch.sin(X)", "torch.cos(X)"),
            ("P[:, 1::2] = torch.cos(X)", "P[:, 1::2] = torch.sin(X)"),
        ),
        ("positions are counted from 1", "sine and cosine are swapped"),
    ),
    "teacher without a shift": Submission(
        "train_copy",
        edit(TRAIN, ("dec_input, labels = Y[:, :-1], Y[:, 1:]", "dec_input, labels = Y, Y")),
        ("the target is not shifted",),
    ),
}
