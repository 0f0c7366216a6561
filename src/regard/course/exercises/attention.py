"""Exercises: score, softmax with mask, attention, positions."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Array, Case, Exercise, varied
from regard.course.reference import attention as weighing


def _draw(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def masks(seed: int, batch: int, queries: int, keys: int) -> Array:
    """Return a mask (B, Tq, Tk) in which every query sees some keys, and every key is seen by two queries.

    A single query sees everything.
    """
    generator = np.random.default_rng(seed + 1)
    mask: Array = generator.random((batch, queries, keys)) < 0.4
    for key in range(keys):
        mask[:, key % queries, key] = mask[:, (key + 2) % queries, key] = True
    for query in range(queries):
        mask[:, query, (2 * query + 1) % keys] = True
    return mask


def _score(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, d: int, **more: Any) -> Case:
        b, tq, tk, d = varied(seed, b, tq, tk, d)
        query, key = _draw(seed + b + tk, (b, tq, d), (b, tk, d))
        return Case(name=name, arguments={"query": query, "key": key}, **more)

    small = Case(
        name="by hand",
        arguments={"query": np.array([[[2.0, 0.0], [1.0, 1.0]]]), "key": np.array([[[1.0, 0.0], [0.0, 4.0]]])},
    )
    return [
        case("Tq other than Tk", 2, 5, 7, 3),
        case("as many keys as queries", 3, 5, 5, 7),
        case("a wide key", 2, 3, 2, 31),
        case("one step", 2, 1, 5, 3),
        case("one of the batch alone", 1, 5, 7, 3),
        case("gradients", 2, 3, 5, 7, slopes=("query", "key")),
        small,
    ]


def _softmax(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, scale: float = 2.0, **more: Any) -> Case:
        b, tq, tk = varied(seed, b, tq, tk)
        (scores,) = _draw(seed + b + tk, (b, tq, tk))
        return Case(name=name, arguments={"scores": scores * scale, "mask": masks(seed, b, tq, tk)}, **more)

    whole, blind = case("", 2, 3, 5), case("", 2, 5, 5)
    mask = blind.arguments["mask"].copy()
    mask[0, 1], mask[1, -1] = False, False
    nothing = {"scores": blind.arguments["scores"], "mask": mask}
    small = {"scores": np.array([[[1.0, 2.0], [2.0, 3.0]]]), "mask": np.array([[[True, True], [True, False]]])}
    return [
        case("a mask", 2, 5, 7),
        case("as many keys as queries", 3, 5, 5),
        Case(
            name="nothing masked",
            arguments={**whole.arguments, "mask": np.ones(whole.arguments["mask"].shape, bool)},
        ),
        case("one step", 2, 1, 5),
        case("one of the batch alone", 1, 5, 7),
        case("large scores", 2, 3, 5, scale=2_000.0),
        Case(name="all masked", arguments=nothing, slopes=("scores",)),
        case("gradients", 2, 3, 5, slopes=("scores",)),
        Case(name="by hand", arguments=small),
    ]


def _attention(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, d: int, dv: int, masked: bool = True, **more: Any) -> Case:
        b, tq, tk, d, dv = varied(seed, b, tq, tk, d, dv)
        query, key, value = _draw(seed + b + tk, (b, tq, d), (b, tk, d), (b, tk, dv))
        mask = masks(seed, b, tq, tk) if masked else None
        return Case(name=name, arguments={"query": query, "key": key, "value": value, "mask": mask}, **more)

    every = ("query", "key", "value")
    blind = case("all masked", 2, 5, 7, 3, 11, slopes=every)
    blind.arguments["mask"][0, 1] = False
    return [
        case("Tq other than Tk", 2, 5, 7, 3, 11, masked=False),
        case("as many keys as queries", 3, 5, 5, 7, 7, masked=False),
        case("a mask", 2, 5, 7, 3, 11),
        case("a mask of equal sides", 3, 5, 5, 7, 7),
        case("one step", 2, 1, 5, 3, 7),
        case("one of the batch alone", 1, 5, 7, 3, 11),
        case("gradients", 2, 3, 5, 7, 2, slopes=every),
        blind,
        Case(
            name="by hand",
            arguments={
                "query": np.array([[[2.0, 0.0], [1.0, 1.0]]]),
                "key": np.array([[[1.0, 0.0], [0.0, 4.0]]]),
                "value": np.array([[[1.0, 0.0], [0.0, 10.0]]]),
                "mask": np.array([[[True, True], [True, False]]]),
            },
        ),
    ]


def _positions(seed: int) -> list[Case]:
    def case(name: str, length: int, width: int) -> Case:
        (length,) = varied(seed, length)
        return Case(name=name, arguments={"length": length, "width": width}, sizes={"width": width})

    more = 2 * (3 + seed % 5)
    return [
        case("prime sizes", 7, 2 * 5),
        case("a wide model", 11, 2 * 23),
        case("two dimensions", 5, 2),
        case("one step", 1, 6),
        case("many steps", 101, more),
        case("by hand", 2, 4),
    ]


def _concatenated(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, d: int, width: int, **more: Any) -> Case:
        b, t, d = varied(seed, b, t, d)
        (states,) = _draw(seed + b + t, (b, t, d))
        return Case(name=name, arguments={"states": states, "width": width}, sizes={"width": width}, **more)

    small = {"states": np.array([[[5.0, 6.0], [7.0, 8.0]]]), "width": 2}
    return [
        case("prime sizes", 2, 7, 3, 10),
        case("waves as wide as the states", 3, 5, 6, 6),
        case("one step", 2, 1, 3, 4),
        case("one of the batch alone", 1, 7, 3, 10),
        case("gradients", 2, 3, 5, 4, slopes=("states",)),
        Case(name="by hand", arguments=small, sizes={"width": 2}),
    ]


SCORE = '''"""Exercise: the score of a query and a key (Vaswani et al. 2017, equation 1, without softmax and V).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def score(query, key):
    """Return Q Kᵀ / √D.

    query (B, Tq, D), key (B, Tk, D); returns (B, Tq, Tk).
    B batch, Tq and Tk how many queries and keys, D width.
    """
    raise NotImplementedError
'''
SOFTMAX = '''"""Exercise: from scores to weights (Vaswani et al. 2017, section 3.2.3 for the mask).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def masked_softmax(scores, mask):
    """Return the softmax of each row, over what its mask allows.

    scores (B, Tq, Tk); mask (B, Tq, Tk), True = may be attended; returns weights (B, Tq, Tk).
    A row that may attend to nothing has zero weights. Scores may be as large as 5000.
    """
    raise NotImplementedError
'''
ATTENTION = '''"""Exercise: scaled dot-product attention (Vaswani et al. 2017, equation 1).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def attention(query, key, value, mask=None):
    """Return context = softmax(Q Kᵀ / √D) V, and the weights.

    query (B, Tq, D), key (B, Tk, D), value (B, Tk, Dv); mask (B, Tq, Tk), True = may be attended.
    Returns context (B, Tq, Dv), weights (B, Tq, Tk). A row that may attend to nothing has zero weights.
    """
    raise NotImplementedError
'''
WAVES = '''"""Exercise: sinusoidal positions (Vaswani et al. 2017, section 3.5).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def sinusoidal_positions(length, width):
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(pos / 10000^(2i/width)).

    length: positions, counted from 0; width: an even number. Returns (length, width).
    """
    raise NotImplementedError
'''
CONCATENATED = '''"""Exercise: positions beside the states instead of added (Vaswani et al. 2017, section 3.5).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def concatenate_positions(states, width):
    """Return the states, with the sinusoidal positions of `width` behind each.

    states (B, T, D); returns (B, T, D + width). The waves are those of the exercise sinusoidal_positions.
    """
    raise NotImplementedError
'''

EXERCISES = (
    Exercise(
        name="score",
        title="the score of query and key",
        stub=SCORE,
        reference=weighing.score,
        cases=_score,
        outputs=("scores",),
        names=("scaled_dot_score", "scores", "scaled_scores", "dot_product_score"),
    ),
    Exercise(
        name="masked_softmax",
        title="softmax with a mask",
        stub=SOFTMAX,
        reference=weighing.masked_softmax,
        cases=_softmax,
        outputs=("weights",),
        names=("softmax", "softmax_with_mask", "masked_soft_max"),
    ),
    Exercise(
        name="attention",
        title="scaled dot-product attention",
        stub=ATTENTION,
        reference=weighing.attention,
        cases=_attention,
        outputs=("context", "weights"),
        names=("scaled_dot_product_attention", "dot_product_attention", "single_head_attention"),
    ),
    Exercise(
        name="sinusoidal_positions",
        title="sinusoidal positions",
        stub=WAVES,
        reference=weighing.sinusoidal_positions,
        cases=_positions,
        outputs=("waves",),
        names=("positional_encoding", "sinusoidal", "sinusoidal_embedding", "sinusoidal_encoding", "positions"),
    ),
    Exercise(
        name="concatenate_positions",
        title="concatenated positions",
        stub=CONCATENATED,
        reference=weighing.concatenate_positions,
        cases=_concatenated,
        outputs=("states",),
        names=("concatenated_positions", "concat_positions", "ConcatenatedSinusoidal"),
        held=("width",),
        builds=("width",),
    ),
)
