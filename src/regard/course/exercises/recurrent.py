"""Exercises: a step of Bahdanau's decoder, and one of Luong's."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Array, Case, Exercise, TanhCell, varied
from regard.course.reference import decoding as stepping


def _seen(generator: np.random.Generator, batch: int, time: int) -> Array:
    seen: Array = np.arange(time) < generator.integers(1, time + 1, (batch, 1))
    seen[0] = np.arange(time) < max(1, time - 1)
    return seen


def _bahdanau(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, e: int, d: int, m: int, a: int, masked: bool = True, **more: Any) -> Case:
        b, t, e, d, m, a = varied(seed, b, t, e, d, m, a)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "previous": generator.normal(size=(b, e)),
            "state": generator.normal(size=(b, d)),
            "memory": generator.normal(size=(b, t, m)),
            "cell": TanhCell(generator.normal(size=(e + m + d, d)) / 2),
            "w": generator.normal(size=(d, a)),
            "u": generator.normal(size=(m, a)),
            "v": generator.normal(size=a) * 2,
            "mask": _seen(generator, b, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes={"width": d, "memory": m, "inner": a}, **more)

    return [
        case("prime sizes", 3, 5, 2, 7, 11, 13, masked=False),
        case("a mask", 3, 5, 2, 7, 11, 13),
        case("one width for all", 2, 7, 5, 5, 5, 5, plain=True),
        case("one source step", 2, 1, 3, 5, 7, 2),
        case("one of the batch alone", 1, 5, 2, 7, 11, 13),
        case("gradients", 2, 5, 3, 5, 7, 2, slopes=("previous", "state", "memory")),
    ]


def _luong(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, e: int, d: int, m: int, masked: bool = True, **more: Any) -> Case:
        b, t, e, d, m = varied(seed, b, t, e, d, m)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "previous": generator.normal(size=(b, e)),
            "state": generator.normal(size=(b, d)),
            "memory": generator.normal(size=(b, t, m)),
            "cell": TanhCell(generator.normal(size=(e + d, d)) / 2),
            "w_a": generator.normal(size=(d, m)),
            "w_c": generator.normal(size=(m + d, d)) / 2,
            "mask": _seen(generator, b, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes={"width": d, "memory": m}, **more)

    return [
        case("prime sizes", 3, 5, 2, 7, 11, masked=False),
        case("a mask", 3, 5, 2, 7, 11),
        case("one width for all", 2, 7, 5, 5, 5, plain=True),
        case("one source step", 2, 1, 3, 5, 7),
        case("one of the batch alone", 1, 5, 2, 7, 11),
        case("gradients", 2, 5, 3, 5, 7, slopes=("previous", "state", "memory")),
    ]


def _small_bahdanau() -> list[Case]:
    known = {"previous": [[1.0]], "state": [[-0.5]], "memory": [[[0.5], [-1.0]]]}
    arguments: dict[str, Any] = {name: np.array(value) for name, value in known.items()}
    arguments |= {"cell": TanhCell(np.ones((3, 1))), "w": np.eye(1), "u": np.eye(1), "v": np.array([2.0])}
    return [Case(name="by hand", arguments=arguments)]


def _small_luong() -> list[Case]:
    known = {
        "previous": [[1.0]],
        "state": [[-0.5]],
        "memory": [[[0.5], [-1.0]]],
        "w_a": [[2.0]],
        "w_c": [[1.0], [0.5]],
    }
    arguments: dict[str, Any] = {name: np.array(value) for name, value in known.items()}
    cell = {"cell": TanhCell(np.ones((2, 1)))}
    order = ("previous", "state", "memory", "cell", "w_a", "w_c")
    return [Case(name="by hand", arguments={name: (arguments | cell)[name] for name in order})]


BAHDANAU = '''"""Exercise: one step of a decoder with attention (Bahdanau et al. 2015, appendix A.1.2 and A.2.2).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def bahdanau_step(previous, state, memory, cell, w, u, v, mask=None):
    """Return the next state s_i, and the weights α_i.

    e_ij = v · tanh(s_(i-1) W + h_j U);  α_i = softmax(e_i);  c_i = Σ_j α_ij h_j;
    s_i = cell([y_(i-1); c_i], s_(i-1))

    previous (B, E): the previous word's embedding y_(i-1); state (B, D): s_(i-1); memory (B, T, M): the h_j;
    cell: a function, cell(input (B, E + M), state (B, D)) returns the next state (B, D);
    w (D, A), u (M, A), v (A,); mask (B, T), True = may be attended. Returns s_i (B, D), α_i (B, T).

    Or as a module with weights of its own: class BahdanauStep(nn.Module): __init__(self, width, memory, inner)
    for D, M and A, forward(self, previous, state, memory, cell, mask=None)
    """
    raise NotImplementedError
'''
LUONG = '''"""Exercise: one step of a decoder with attention (Luong et al. 2015, section 3.1, score general).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def luong_step(previous, state, memory, cell, w_a, w_c, mask=None):
    """Return the attentional state h̃_t, the next state h_t, and the weights a_t.

    h_t = cell(y_(t-1), h_(t-1));  a_t = softmax over s of h_tᵀ W_a h̄_s;  c_t = Σ_s a_ts h̄_s;
    h̃_t = tanh([c_t; h_t] W_c)

    previous (B, E): the previous word's embedding y_(t-1); state (B, D): h_(t-1); memory (B, T, M): the h̄_s;
    cell: a function, cell(input (B, E), state (B, D)) returns the next state (B, D);
    w_a (D, M), w_c (M + D, D); mask (B, T), True = may be attended. Returns h̃_t (B, D), h_t (B, D), a_t (B, T).

    Or as a module with weights of its own: class LuongStep(nn.Module): __init__(self, width, memory) for D and M,
    forward(self, previous, state, memory, cell, mask=None)
    """
    raise NotImplementedError
'''

EXERCISES = (
    Exercise(
        name="bahdanau_step",
        title="a step of Bahdanau's decoder",
        stub=BAHDANAU,
        reference=stepping.bahdanau_step,
        cases=_bahdanau,
        small=_small_bahdanau,
        outputs=("state", "weights"),
        names=("bahdanau", "bahdanau_attention", "additive_attention"),
        held=("w", "u", "v"),
        builds=("width", "memory", "inner"),
    ),
    Exercise(
        name="luong_step",
        title="a step of Luong's decoder",
        stub=LUONG,
        reference=stepping.luong_step,
        cases=_luong,
        small=_small_luong,
        outputs=("output", "state", "weights"),
        names=("luong", "luong_attention"),
        held=("w_a", "w_c"),
        builds=("width", "memory"),
    ),
)
