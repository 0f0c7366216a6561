"""Exercises: multi-head attention and the feed-forward network, the parts of a Transformer's layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.course.exercises.attention import masks
from regard.course.exercises.exercise import Array, Case, Exercise, varied
from regard.course.reference import transformer as layers

HEADS, WIDTH, INNER = 3, 15, 11
WIDER = 21
"""Width of inputs with as many keys as queries: a head's is not that number too."""
ATTENTION = ("w_q", "w_k", "w_v", "w_o")
FEED_FORWARD = ("w_1", "b_1", "w_2", "b_2")


def drawn(generator: np.random.Generator, names: Sequence[str], width: int, inner: int) -> dict[str, Array]:
    """Return parameters of these names, none of them 0 or 1."""
    shapes = {"w_1": (width, inner), "b_1": (inner,), "w_2": (inner, width), "b_2": (width,)}
    found: dict[str, Array] = {}
    for name in names:
        if name.startswith(("gain", "shift")):
            found[name] = generator.normal(1 if name.startswith("gain") else 0, 0.5, width)
        else:
            shape = shapes.get(name, (width, width))
            found[name] = generator.normal(size=shape) * (0.5 if len(shape) == 1 else 1.5 * shape[0] ** -0.5)
    return found


def sizes_of(width: int, heads: int, inner: int = INNER) -> dict[str, int]:
    """Return what a module of a learner's is built with."""
    return {"width": width, "heads": heads, "inner": inner}


def _multi_head(seed: int) -> list[Case]:
    def case(
        name: str, b: int, tq: int, tk: int, heads: int, width: int, masked: bool = True, **more: Any
    ) -> Case:
        b, tq, tk, heads, size = varied(seed, b, tq, tk, heads, width // heads)
        width = heads * size
        generator = np.random.default_rng(seed + b + tk)
        arguments: dict[str, Any] = {
            "query": generator.normal(size=(b, tq, width)),
            "key": generator.normal(size=(b, tk, width)),
            "value": generator.normal(size=(b, tk, width)),
            **drawn(generator, ATTENTION, width, INNER),
            "heads": heads,
            "mask": masks(seed, b, tq, tk) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=sizes_of(width, heads), **more)

    every = ("query", "key", "value")
    blind = case("all masked", 2, 5, 7, HEADS, WIDTH, slopes=every)
    blind.arguments["mask"][0, 1] = False
    alone = case("self-attention", 2, 5, 5, HEADS, WIDER)
    same = {**alone.arguments, "key": alone.arguments["query"], "value": alone.arguments["query"]}
    small = {
        "query": np.array([[[1.0, 0.0], [0.0, 2.0]]]),
        "key": np.array([[[2.0, 1.0], [0.0, 3.0]]]),
        "value": np.array([[[1.0, 0.0], [0.0, 1.0]]]),
        "w_q": np.array([[1.0, 0.0], [1.0, 1.0]]),
        "w_k": np.array([[1.0, 1.0], [0.0, 1.0]]),
        "w_v": np.array([[1.0, 0.0], [2.0, 1.0]]),
        "w_o": np.array([[1.0, 1.0], [0.0, 2.0]]),
        "heads": 2,
        "mask": None,
    }
    return [
        case("Tq other than Tk", 2, 5, 7, HEADS, WIDTH, masked=False),
        case("as many keys as queries", 3, 5, 5, HEADS, WIDER, masked=False),
        Case(name="self-attention", arguments=same, sizes=alone.sizes),
        case("a mask", 2, 5, 7, HEADS, WIDTH),
        case("other sizes", 2, 3, 5, 2, 14),
        case("one step", 2, 1, 5, HEADS, WIDTH),
        case("one of the batch alone", 1, 5, 7, HEADS, WIDTH),
        case("gradients", 2, 3, 5, HEADS, WIDTH, slopes=(*every, *ATTENTION)),
        blind,
        Case(name="by hand", arguments=small, sizes=sizes_of(2, 2), plain=True),
    ]


def _feed_forward(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, width: int, inner: int, **more: Any) -> Case:
        b, t, width, inner = varied(seed, b, t, width, inner)
        generator = np.random.default_rng(seed + b + t)
        states = generator.normal(size=(b, t, width))
        arguments = {"states": states, **drawn(generator, FEED_FORWARD, width, inner)}
        return Case(name=name, arguments=arguments, sizes=sizes_of(width, HEADS, inner), **more)

    small = {
        "states": np.array([[[1.0, -1.0]]]),
        "w_1": np.array([[1.0, -1.0, 2.0], [0.0, 1.0, 0.5]]),
        "b_1": np.array([0.5, 0.5, -3.0]),
        "w_2": np.array([[1.0, -2.0], [1.0, 1.0], [3.0, 0.0]]),
        "b_2": np.array([0.25, 0.0]),
    }
    return [
        case("prime sizes", 2, 5, 7, 11),
        case("narrower inside", 3, 5, 11, 7),
        case("one step", 2, 1, 7, 11),
        case("one of the batch alone", 1, 5, 7, 11),
        case("gradients", 2, 3, 7, 11, slopes=("states", *FEED_FORWARD)),
        Case(name="by hand", arguments=small, sizes=sizes_of(2, 1, 3)),
    ]


HEAD = '''"""Exercise: {title} (Vaswani et al. 2017, {where}).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""

'''
MULTI_HEAD = (
    HEAD.format(title="multi-head attention", where="section 3.2.2")
    + '''
def multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, heads, mask=None):
    """Return Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    query (B, Tq, D), key and value (B, Tk, D); w_q, w_k, w_v, w_o (D, D), applied as x @ w;
    mask (B, Tq, Tk), True = may be attended. Head i has the columns i D/h to (i + 1) D/h. Returns (B, Tq, D).
    A row that may attend to nothing has zero weights.

    Or as a module, with weights of its own, which the checker sets:
    class MultiHeadAttention(nn.Module): __init__(self, width, heads), forward(self, query, key, value, mask=None)
    """
    raise NotImplementedError
'''
)
FEEDING = (
    HEAD.format(title="the position-wise feed-forward network", where="equation 2")
    + '''
def feed_forward(states, w_1, b_1, w_2, b_2):
    """Return max(0, x W_1 + b_1) W_2 + b_2.

    states (B, T, D); w_1 (D, F), b_1 (F,), w_2 (F, D), b_2 (D,). Returns (B, T, D).

    Or as a module: class FeedForward(nn.Module): __init__(self, width, inner), forward(self, states)
    """
    raise NotImplementedError
'''
)

EXERCISES = (
    Exercise(
        name="multi_head_attention",
        title="multi-head attention",
        stub=MULTI_HEAD,
        reference=layers.multi_head_attention,
        cases=_multi_head,
        outputs=("context",),
        names=("multi_head", "multihead_attention", "multi_headed_attention", "MHA"),
        held=(*ATTENTION, "heads"),
        builds=("width", "heads"),
    ),
    Exercise(
        name="feed_forward",
        title="the feed-forward network",
        stub=FEEDING,
        reference=layers.feed_forward,
        cases=_feed_forward,
        outputs=("states",),
        names=(
            "ffn",
            "mlp",
            "position_wise_feed_forward",
            "position_wise_ffn",
            "feed_forward_network",
            "pointwise_feed_forward",
        ),
        held=FEED_FORWARD,
        builds=("width", "inner"),
    ),
)
