"""How every weight of a map came about, as plain data: what a page needs to tell the sum without the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np


class SumStep(NamedTuple):
    """One of the vectors that a score is made of, for all heads, queries and keys."""

    name: str
    numbers: np.ndarray | None
    """(H, Tq, D) where it depends on the query alone, (H, Tk, D) on the key alone, else (H, Tq, Tk, D); None of a
    product of two steps before it."""
    of: Literal["query", "key", "pair", "product"]
    """What it depends on, or that it is a product."""
    factors: tuple[int, int] | None = None
    """Which steps it is the product of."""


@dataclass(frozen=True, kw_only=True)
class LayerSums:
    """What one layer worked out; see `regard.interpret.Explanation`, where each part is of one query."""

    steps: Sequence[SumStep]
    scale: float
    scores: np.ndarray
    """(H, Tq, Tk)."""
    may_see: np.ndarray
    """(H, Tq, Tk) bool."""
    weights: np.ndarray
    """(H, Tq, Tk)."""
    values: np.ndarray
    """(H, Tk, Dv)."""
    context: np.ndarray
    """(H, Tq, Dv)."""
    added: np.ndarray
    """(Tq, D)."""
    own_part: np.ndarray | None
    """(H, Tq, D)."""
    before_norm: np.ndarray | None
    """(Tq, D)."""
    after_norm: np.ndarray | None
    """(Tq, D)."""


class AnswerSums(NamedTuple):
    """What a model made of the state of one output step."""

    answer: str
    probability: float
    state: Sequence[float]
    classes: Sequence[str]
    logits: Sequence[float]
    probabilities: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Those of all layers of a map, and of its answer."""

    layers: dict[str, LayerSums]
    answers: Sequence[AnswerSums]
    """Of each output step; empty where they were not kept."""
