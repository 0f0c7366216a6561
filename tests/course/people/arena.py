"""Files in the style of ARENA: einops, classes with `W_Q`, shapes in comments."""

from tests.course.people.submission import Submission, edit

HEADS = """
import einops
import torch as t
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.d_head = width // heads
        self.W_Q = nn.Linear(width, width, bias=False)
        self.W_K = nn.Linear(width, width, bias=False)
        self.W_V = nn.Linear(width, width, bias=False)
        self.W_O = nn.Linear(width, width, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q = einops.rearrange(self.W_Q(query), "batch posn (head d) -> batch posn head d", head=self.heads)
        k = einops.rearrange(self.W_K(key), "batch posn (head d) -> batch posn head d", head=self.heads)
        v = einops.rearrange(self.W_V(value), "batch posn (head d) -> batch posn head d", head=self.heads)
        attn_scores = einops.einsum(q, k, "batch pq head d, batch pk head d -> batch head pq pk")
        attn_scores = attn_scores / self.d_head**0.5
        if mask is not None:
            attn_scores = attn_scores.masked_fill(~mask[:, None], -t.inf)
        attn_pattern = attn_scores.softmax(-1).nan_to_num()
        z = einops.einsum(v, attn_pattern, "batch pk head d, batch head pq pk -> batch pq head d")
        return self.W_O(einops.rearrange(z, "batch posn head d -> batch posn (head d)"))
"""

ENCODER = """
import einops
import torch as t
from torch import Tensor, nn


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.w = nn.Parameter(t.ones(d_model))
        self.b = nn.Parameter(t.zeros(d_model))

    def forward(self, residual: Tensor) -> Tensor:
        residual_mean = residual.mean(dim=-1, keepdim=True)
        residual_std = (residual.var(dim=-1, keepdim=True, unbiased=False) + self.eps).sqrt()
        residual = (residual - residual_mean) / residual_std
        return residual * self.w + self.b


class Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
        split = lambda z: einops.rearrange(z, "b s (h d) -> b h s d", h=self.n_heads)
        q, k, v = split(self.W_Q(x)), split(self.W_K(y)), split(self.W_V(y))
        scores = q @ k.transpose(-1, -2) / self.d_head**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e9)
        z = scores.softmax(-1) @ v
        return self.W_O(einops.rearrange(z, "b h s d -> b s (h d)"))


class MLP(nn.Module):
    def __init__(self, d_model: int, d_mlp: int):
        super().__init__()
        self.W_in = nn.Linear(d_model, d_mlp)
        self.W_out = nn.Linear(d_mlp, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_out(t.relu(self.W_in(x)))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.attn = Attention(width, heads)
        self.ln1 = LayerNorm(width)
        self.mlp = MLP(width, inner)
        self.ln2 = LayerNorm(width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        resid_mid = self.ln1(states + self.attn(states, states, mask))
        return self.ln2(resid_mid + self.mlp(resid_mid))
"""

DECODER = edit(
    ENCODER,
    ("class EncoderLayer", "class DecoderLayer"),
    (
        "        self.mlp = MLP(width, inner)\n        self.ln2 = LayerNorm(width)\n",
        "        self.cross = Attention(width, heads)\n        self.ln2 = LayerNorm(width)\n"
        "        self.mlp = MLP(width, inner)\n        self.ln3 = LayerNorm(width)\n",
    ),
    (
        ENCODER[ENCODER.rindex("    def forward(self, states") :],
        """    def forward(self, states: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        b, s, _ = states.shape
        causal = t.tril(t.ones(s, s, dtype=t.bool)).expand(b, s, s)
        x = self.ln1(states + self.attn(states, states, causal))
        x = self.ln2(x + self.cross(x, memory, memory_mask))
        return self.ln3(x + self.mlp(x))
""",
    ),
)

SOFTMAX = """
import torch as t
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    masked = scores.masked_fill(~mask, -t.inf)
    # rows without any allowed key are all -inf: shift by zero and divide by one there
    top = masked.amax(dim=-1, keepdim=True)
    top = t.where(top == -t.inf, t.zeros_like(top), top)
    exped = (masked - top).exp()
    total = exped.sum(dim=-1, keepdim=True)
    return exped / t.where(total == 0, t.ones_like(total), total)
"""

SCORE = """
import einops
import torch as t
from torch import Tensor


def score(query: Tensor, key: Tensor) -> Tensor:
    scores = einops.einsum(query, key, "batch posn_q d_head, batch posn_k d_head -> batch posn_q posn_k")
    return scores / query.shape[-1] ** 0.5
"""

RIGHT = {
    "heads": Submission("multi_head_attention", HEADS),
    "encoder": Submission("encoder_layer", ENCODER),
    "decoder": Submission("decoder_layer", DECODER),
    "softmax": Submission("masked_softmax", SOFTMAX),
    "score": Submission("score", SCORE),
}
WRONG = {
    "scaled by the model's width": Submission(
        "multi_head_attention",
        edit(HEADS, ("/ self.d_head**0.5", "/ (self.d_head * self.heads) ** 0.5")),
        ("divided by the root of the model's width",),
    ),
    "heads inside out": Submission(
        "multi_head_attention",
        edit(HEADS, ("batch posn head d -> batch posn (head d)", "batch posn head d -> batch posn (d head)")),
        ("the heads are interleaved in the concatenation",),
    ),
    "IGNORE buffer": Submission(
        "multi_head_attention",
        edit(HEADS, ("-t.inf", "-1e5"), (".nan_to_num()", "")),
        ("a fully masked row gets uniform weights",),
    ),
    "pattern over queries": Submission(
        "multi_head_attention", edit(HEADS, (".softmax(-1)", ".softmax(-2)")), ("softmax over the queries",)
    ),
    "norm before the sublayer": Submission(
        "encoder_layer",
        edit(
            ENCODER,
            (
                "self.ln1(states + self.attn(states, states, mask))",
                "states + self.attn(self.ln1(states), self.ln1(states), mask)",
            ),
            ("self.ln2(resid_mid + self.mlp(resid_mid))", "resid_mid + self.mlp(self.ln2(resid_mid))"),
        ),
        ("the norms come before the sublayers",),
    ),
    "Bessel": Submission(
        "encoder_layer", edit(ENCODER, (", unbiased=False", "")), ("the variance is divided by D - 1",)
    ),
    "gelu": Submission(
        "encoder_layer",
        edit(ENCODER, ("t.relu(self.W_in(x))", "t.nn.functional.gelu(self.W_in(x))")),
        ("GELU for ReLU",),
    ),
    "future": Submission(
        "decoder_layer",
        edit(
            DECODER,
            ("t.tril(t.ones(s, s, dtype=t.bool))", "t.ones(s, s, dtype=t.bool).triu()"),
            ("self.cross(x, memory, memory_mask)", "self.cross(x, memory, None)"),
        ),
        ("the causal mask is upside down", "the memory's mask is ignored"),
    ),
    "residual from the start": Submission(
        "decoder_layer",
        edit(DECODER, ("self.ln2(x + self.cross(x, memory", "self.ln2(states + self.cross(x, memory")),
        ("the second residual starts at the layer's input",),
    ),
    "no division": Submission(
        "score", edit(SCORE, ("query.shape[-1] ** 0.5", "query.shape[-1]")), ("divided by D, not by its root",)
    ),
}
