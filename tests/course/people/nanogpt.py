"""Files in the style of nanoGPT: `c_attn`, `c_proj`, views and transposes, short blocks."""

from tests.course.people.submission import Submission, edit

HEADS = """
import math
import torch
import torch.nn as nn
from torch.nn import functional as F

class MultiHeadAttention(nn.Module):

    def __init__(self, n_embd, n_head):
        super().__init__()
        assert n_embd % n_head == 0
        self.q_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.k_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.v_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.n_head = n_head
        self.n_embd = n_embd

    def forward(self, q, k, v, mask=None):
        B, T, C = q.size()
        S = k.size(1)
        q = self.q_proj(q).view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
        k = self.k_proj(k).view(B, S, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, S, hs)
        v = self.v_proj(v).view(B, S, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, S, hs)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if mask is not None:
            att = att.masked_fill(mask[:, None] == 0, torch.finfo(att.dtype).min)
        att = F.softmax(att, dim=-1)
        if mask is not None:
            att = att.masked_fill(mask[:, None] == 0, 0.0)
        y = att @ v # (B, nh, T, S) x (B, nh, S, hs) -> (B, nh, T, hs)
        y = y.transpose(1, 2).contiguous().view(B, T, C) # re-assemble all head outputs side by side
        return self.c_proj(y)
"""

MLP = """
import torch.nn as nn

class MLP(nn.Module):

    def __init__(self, n_embd, n_inner):
        super().__init__()
        self.c_fc   = nn.Linear(n_embd, n_inner)
        self.act    = nn.ReLU()
        self.c_proj = nn.Linear(n_inner, n_embd)

    def forward(self, x):
        x = self.c_fc(x)
        x = self.act(x)
        x = self.c_proj(x)
        return x
"""

TRANSFORMER = """
import math
import torch
import torch.nn as nn
from torch.nn import functional as F

class Attn(nn.Module):
    def __init__(self, C, nh):
        super().__init__()
        self.nh = nh
        self.wq = nn.Linear(C, C, bias=False)
        self.wk = nn.Linear(C, C, bias=False)
        self.wv = nn.Linear(C, C, bias=False)
        self.wo = nn.Linear(C, C, bias=False)

    def forward(self, x, y, ok):
        B, T, C = x.shape
        S = y.shape[1]
        q = self.wq(x).view(B, T, self.nh, -1).transpose(1, 2)
        k = self.wk(y).view(B, S, self.nh, -1).transpose(1, 2)
        v = self.wv(y).view(B, S, self.nh, -1).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(~ok, -1e9)
        out = F.softmax(att, dim=-1) @ v
        return self.wo(out.transpose(1, 2).reshape(B, T, C))

class MLP(nn.Module):
    def __init__(self, C, inner):
        super().__init__()
        self.c_fc = nn.Linear(C, inner)
        self.c_proj = nn.Linear(inner, C)

    def forward(self, x):
        return self.c_proj(F.relu(self.c_fc(x)))

class EncoderBlock(nn.Module):
    def __init__(self, C, nh, inner):
        super().__init__()
        self.attn = Attn(C, nh)
        self.mlp = MLP(C, inner)
        self.ln_1 = nn.LayerNorm(C)
        self.ln_2 = nn.LayerNorm(C)

    def forward(self, x, ok):
        x = self.ln_1(x + self.attn(x, x, ok))
        x = self.ln_2(x + self.mlp(x))
        return x

class DecoderBlock(nn.Module):
    def __init__(self, C, nh, inner):
        super().__init__()
        self.attn = Attn(C, nh)
        self.cross = Attn(C, nh)
        self.mlp = MLP(C, inner)
        self.ln_1 = nn.LayerNorm(C)
        self.ln_2 = nn.LayerNorm(C)
        self.ln_3 = nn.LayerNorm(C)

    def forward(self, x, memory, causal, ok):
        x = self.ln_1(x + self.attn(x, x, causal))
        x = self.ln_2(x + self.cross(x, memory, ok))
        x = self.ln_3(x + self.mlp(x))
        return x

class Transformer(nn.Module):
    def __init__(self, source_size, target_size, width, heads, inner, layers):
        super().__init__()
        self.width = width
        self.wte_src = nn.Embedding(source_size, width)
        self.wte_tgt = nn.Embedding(target_size, width)
        self.enc = nn.ModuleList([EncoderBlock(width, heads, inner) for _ in range(layers)])
        self.dec = nn.ModuleList([DecoderBlock(width, heads, inner) for _ in range(layers)])
        self.lm_head = nn.Linear(width, target_size)

    def wpe(self, T):
        pos = torch.arange(T).unsqueeze(1)
        div = torch.exp(torch.arange(0, self.width, 2) * (-math.log(10000.0) / self.width))
        pe = torch.zeros(T, self.width)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        return pe

    def forward(self, idx, tgt):
        S, T = idx.size(1), tgt.size(1)
        ok = (idx != 0)[:, None, None, :]
        causal = torch.tril(torch.ones(T, T, dtype=torch.bool))
        x = self.wte_src(idx) * math.sqrt(self.width) + self.wpe(S)
        for block in self.enc:
            x = block(x, ok)
        y = self.wte_tgt(tgt) * math.sqrt(self.width) + self.wpe(T)
        for block in self.dec:
            y = block(y, x, causal, ok)
        return self.lm_head(y)
"""

GENERATE = """
import numpy as np

def greedy_search(step, start, end, longest):
    idx = [start]
    while len(idx) <= longest:
        logprobs = np.asarray(step(idx))
        idx_next = int(logprobs.argmax(-1))
        idx = idx + [idx_next]
        if idx_next == end:
            break
    return idx[1:]
"""

TRAIN = """
import torch
import torch.nn.functional as F

def train_copy(model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    model.train()
    for X, Y in batches:
        logits = model(X, Y[:, :-1].contiguous())
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), Y[:, 1:].contiguous().view(-1), ignore_index=0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
"""

RIGHT = {
    "heads": Submission("multi_head_attention", HEADS),
    "mlp": Submission("feed_forward", MLP),
    "transformer": Submission("transformer", TRANSFORMER),
    "generate": Submission("greedy_search", GENERATE),
    "training": Submission("train_copy", TRAIN),
}
WRONG = {
    "no transpose back": Submission(
        "multi_head_attention",
        edit(HEADS, ("y.transpose(1, 2).contiguous().view(B, T, C)", "y.contiguous().view(B, T, C)")),
        ("the heads are joined without a transpose",),
    ),
    "always causal": Submission(
        "multi_head_attention",
        edit(
            HEADS,
            (
                "        if mask is not None:\n            att = att.masked_fill(mask[:, None] == 0, torch",
                "        bias = torch.tril(torch.ones(T, S, dtype=torch.bool))\n"
                "        att = att.masked_fill(~bias, float('-inf'))\n"
                "        if mask is not None:\n            att = att.masked_fill(mask[:, None] == 0, torch",
            ),
        ),
        ("always causal",),
    ),
    "one projection": Submission(
        "multi_head_attention",
        edit(HEADS, ("self.k_proj(k)", "self.q_proj(k)"), ("self.v_proj(v)", "self.q_proj(v)")),
        ("one projection for queries, keys and values",),
    ),
    "gelu": Submission("feed_forward", edit(MLP, ("nn.ReLU()", "nn.GELU()")), ("GELU for ReLU",)),
    "residual in the mlp": Submission(
        "feed_forward",
        edit(
            MLP,
            (
                "        x = self.c_fc(x)\n        x = self.act(x)\n        x = self.c_proj(x)\n        return x",
                "        h = self.act(self.c_fc(x))\n        return x + self.c_proj(h)",
            ),
        ),
        ("a residual is added in the feed-forward network",),
    ),
    "pre-norm": Submission(
        "transformer",
        edit(
            TRANSFORMER,
            ("self.ln_1(x + self.attn(x, x, ok))", "x + self.attn(self.ln_1(x), self.ln_1(x), ok)"),
            ("self.ln_2(x + self.mlp(x))", "x + self.mlp(self.ln_2(x))"),
            ("self.ln_1(x + self.attn(x, x, causal))", "x + self.attn(self.ln_1(x), self.ln_1(x), causal)"),
            ("self.ln_2(x + self.cross(x, memory, ok))", "x + self.cross(self.ln_2(x), memory, ok)"),
            ("self.ln_3(x + self.mlp(x))", "x + self.mlp(self.ln_3(x))"),
        ),
        ("the norms come before the sublayers",),
    ),
    "embeddings without their factor": Submission(
        "transformer",
        edit(TRANSFORMER, (" * math.sqrt(self.width)", "")),
        ("the embeddings are not multiplied by √D",),
    ),
    "padding is seen by the decoder": Submission(
        "transformer",
        edit(TRANSFORMER, ("y = block(y, x, causal, ok)", "y = block(y, x, causal, torch.ones_like(ok))")),
        ("the decoder attends to the padding of the source",),
    ),
    "start and end of the answer": Submission(
        "greedy_search",
        edit(
            GENERATE,
            ("    return idx[1:]", "    return idx"),
            ("while len(idx) <= longest", "while len(idx) < longest"),
        ),
        ("the start token is in the answer", "one token too few"),
    ),
    "gradient is never cleared": Submission(
        "train_copy", edit(TRAIN, ("        optimizer.zero_grad(set_to_none=True)\n", "")), ("no zero_grad",)
    ),
}
