"""Files in the style of einsum: one line per equation, NumPy or PyTorch."""

from tests.course.people.submission import Submission, edit

ATTENTION = """
import numpy as np

def attention(query, key, value, mask=None):
    d = query.shape[-1]
    scores = np.einsum("bqd,bkd->bqk", query, key) / d ** 0.5
    if mask is None:
        mask = np.ones_like(scores, dtype=bool)
    scores = np.where(mask, scores, -1e30)
    p = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    p = p / np.maximum(p.sum(-1, keepdims=True), 1e-30)
    return np.einsum("bqk,bkv->bqv", p, value), p
"""

HEADS = """
import torch

def multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, heads, mask=None):
    D = query.shape[-1]
    q = torch.einsum("btd,dhe->bhte", query, w_q.reshape(D, heads, -1))
    k = torch.einsum("bsd,dhe->bhse", key, w_k.reshape(D, heads, -1))
    v = torch.einsum("bsd,dhe->bhse", value, w_v.reshape(D, heads, -1))
    scores = torch.einsum("bhte,bhse->bhts", q, k) / (D // heads) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
    a = torch.softmax(scores, -1)
    if mask is not None:
        a = a * mask.unsqueeze(1)
    o = torch.einsum("bhts,bhse->bthe", a, v)
    return torch.einsum("bthe,hed->btd", o, w_o.reshape(heads, -1, D))
"""

BAHDANAU = """
import numpy as np

def bahdanau_step(previous, state, memory, cell, w, u, v, mask=None):
    hidden = np.tanh(np.einsum("bd,da->ba", state, w)[:, None] + np.einsum("btm,ma->bta", memory, u))
    e = np.einsum("bta,a->bt", hidden, v)
    if mask is not None:
        e = np.where(mask, e, -np.inf)
    a = np.exp(e - e.max(-1, keepdims=True))
    a = a / a.sum(-1, keepdims=True)
    c = np.einsum("bt,btm->bm", a, memory)
    return cell(np.concatenate([previous, c], -1), state), a
"""

LUONG = """
import torch

def luong_step(previous, state, memory, cell, w_a, w_c, mask=None):
    h = cell(previous, state)
    scores = torch.einsum("bd,dm,btm->bt", h, w_a, memory)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    a = scores.softmax(-1)
    c = torch.einsum("bt,btm->bm", a, memory)
    return torch.tanh(torch.cat([c, h], -1) @ w_c), h, a
"""

ENCODER = """
import torch
from torch import einsum

def norm(x, gain, shift):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / (v + 1e-5) ** 0.5 * gain + shift

def mha(x, p, heads, mask):
    B, T, D = x.shape
    q, k, v = (einsum("btd,de->bte", x, p[n]).view(B, T, heads, -1) for n in ("w_q", "w_k", "w_v"))
    s = einsum("bqhe,bkhe->bhqk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask[:, None], -1e9)
    o = einsum("bhqk,bkhe->bqhe", s.softmax(-1), v).reshape(B, T, D)
    return o @ p["w_o"]

def encoder_layer(states, parameters, heads, mask=None):
    p = parameters
    x = norm(states + mha(states, p, heads, mask), p["gain_1"], p["shift_1"])
    f = torch.relu(einsum("btd,df->btf", x, p["w_1"]) + p["b_1"])
    f = einsum("btf,fd->btd", f, p["w_2"]) + p["b_2"]
    return norm(x + f, p["gain_2"], p["shift_2"])
"""

RIGHT = {
    "attention": Submission("attention", ATTENTION),
    "heads": Submission("multi_head_attention", HEADS),
    "bahdanau": Submission("bahdanau_step", BAHDANAU),
    "luong": Submission("luong_step", LUONG),
    "encoder": Submission("encoder_layer", ENCODER),
}
WRONG = {
    "scores for weights": Submission(
        "attention",
        edit(ATTENTION, ('"bqk,bkv->bqv", p, value), p', '"bqk,bkv->bqv", p, value), scores')),
        ("the scores are returned for the weights",),
    ),
    "bkq": Submission(
        "attention",
        edit(
            ATTENTION,
            ("p / np.maximum(p.sum(-1, keepdims=True), 1e-30)", "p / np.maximum(p.sum(1, keepdims=True), 1e-30)"),
            (" / d ** 0.5", ""),
        ),
        ("softmax over the queries", "no scale"),
    ),
    "width of the values": Submission(
        "attention",
        edit(ATTENTION, ("/ d ** 0.5", "/ value.shape[-1] ** 0.5")),
        ("divided by the root of the value's width",),
    ),
    "heads last": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            (
                '"btd,dhe->bhte", query, w_q.reshape(D, heads, -1)',
                '"btd,deh->bhte", query, w_q.reshape(D, -1, heads)',
            ),
            (
                '"bsd,dhe->bhse", key, w_k.reshape(D, heads, -1)',
                '"bsd,deh->bhse", key, w_k.reshape(D, -1, heads)',
            ),
            (
                '"bsd,dhe->bhse", value, w_v.reshape(D, heads, -1)',
                '"bsd,deh->bhse", value, w_v.reshape(D, -1, heads)',
            ),
        ),
        ("head i has every h-th column",),
    ),
    "softmax over heads": Submission(
        "multi_head_attention",
        edit(HEADS, ("torch.softmax(scores, -1)", "torch.softmax(scores, 1)")),
        ("softmax over the heads",),
    ),
    "keys as values": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            ('"bsd,dhe->bhse", value, w_v', '"bsd,dhe->bhse", key, w_v'),
            (" / (D // heads) ** 0.5", " / D ** 0.5"),
        ),
        ("the keys are used for the values", "divided by the root of the model's width"),
    ),
    "scores for weights of the step": Submission(
        "bahdanau_step",
        edit(
            BAHDANAU,
            (
                "    return cell(np.concatenate([previous, c], -1), state), a",
                "    s = cell(np.concatenate([previous, c], -1), state)\n    return s, e",
            ),
        ),
        ("the scores are returned for the weights",),
    ),
    "old state": Submission(
        "luong_step",
        edit(
            LUONG,
            ("    h = cell(previous, state)\n", ""),
            ('"bd,dm,btm->bt", h, w_a', '"bd,dm,btm->bt", state, w_a'),
            ("    return torch.tanh", "    h = cell(previous, state)\n    return torch.tanh"),
        ),
        ("the score uses the previous state",),
    ),
    "state before context": Submission(
        "luong_step",
        edit(LUONG, ("torch.cat([c, h], -1)", "torch.cat([h, c], -1)")),
        ("the state stands before the context",),
    ),
    "half a norm": Submission(
        "encoder_layer",
        edit(
            ENCODER,
            ("(v + 1e-5) ** 0.5 * gain + shift", "(v ** 0.5 + 1e-5) * gain"),
            ("(x - m) / (v", "(x - m) / (v"),
        ),
        ("the shift of the norms is missing", "the small number is added to the standard deviation"),
    ),
}
