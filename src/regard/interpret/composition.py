"""Composition scores (Elhage et al. 2021): how much a head can read from an earlier head.

    Q-composition = |W_QK^T W_OV|_F / (|W_QK|_F |W_OV|_F)
    K-composition = |W_QK W_OV|_F / (|W_QK|_F |W_OV|_F)
    V-composition = |W_OV' W_OV|_F / (|W_OV'|_F |W_OV|_F)

W_OV = W_O W_V belongs to the earlier head, W_QK = W_Q^T W_K and W_OV' to the later head; |.|_F is the Frobenius
norm. A score is between 0 and 1. Random matrices of the same shapes have scores above 0, which `random` states.
The scores depend on the weights only: they say what a head could read, not what it reads. Norms, biases and
rotary positions between the matrices are left out, and the result says so.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from rich.console import Group, RenderableType
from torch import Tensor

from regard.activations.components import KINDS, Kind, matrix_of
from regard.arguments import public
from regard.errors import InputError
from regard.result import Result, plain_table
from regard.viz.subject import Subject

DRAWS = 20  # Random pairs of heads over which `random` is a mean
LISTED = 20  # Pairs that the table lists
REMARK = "from weights alone: norms, biases and rotary positions between the heads are left out"


class _Head(NamedTuple):
    """The matrices of a head, for states in rows: x @ query (D, d), x @ value (D, d) @ output (d, D)."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Composition(Result):
    """Composition scores (0 to 1) of pairs of heads."""

    scores: dict[tuple[str, str], float]
    """By sender (`LAYER.HEAD`) and receiver (`LAYER.HEAD.query`): the score."""
    random: dict[str, float]
    """By layer of the receiver: the mean score of random matrices of the same shapes."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers without scores, with the reason."""

    def ranked(self) -> list[tuple[float, str, str]]:
        """Return score, sender and receiver of each pair, the largest score first."""
        return sorted(((score, *pair) for pair, score in self.scores.items()), key=lambda item: -item[0])

    def summary(self) -> str:
        score, sender, receiver = self.ranked()[0]
        return f"{sender} -> {receiver} has the largest score, {score:.3f}"

    def table(self) -> RenderableType:
        rows = (
            (sender, receiver, f"{score:.3f}", f"{self.random[receiver.rsplit('.', 2)[0]]:.3f}")
            for score, sender, receiver in self.ranked()[:LISTED]
        )
        table = plain_table(("from", "to", "score", "random"), rows, "Composition scores of heads")
        left_out = [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return Group(table, REMARK, *left_out)

    def json(self) -> dict[str, Any]:
        return {**super().json(), "scores": {f"{a} -> {b}": score for (a, b), score in self.scores.items()}}


@public
@torch.no_grad()
def composition(subject: Subject[Any]) -> Composition:
    """Return the composition scores of each head with each later head that reads from its stream.

    Decoder heads read from encoder heads only through the keys and values of cross-attention.

    >>> print(regard.composition(regard.load("runs/induction")))    # doctest: +SKIP

    Raises `InputError` for a model without two layers of heads with projections.
    """
    components = subject.components
    head_inputs, inputs_left_out = components.find_inputs()
    left_out = dict(components.left_out)
    layers: dict[str, list[_Head]] = {}
    for layer in subject.layers:
        inputs, contexts = head_inputs.get(layer.name), components.heads.get(layer.name)
        if inputs is None or contexts is None:
            left_out.setdefault(layer.name, inputs_left_out.get(layer.name, "its projections are not known"))
        elif contexts.is_output or contexts.is_torch or not inputs.parts:
            left_out[layer.name] = "it has no separate projections"
        else:
            query, key, value = inputs.matrices()
            output = matrix_of(contexts.projection).double().unflatten(0, (contexts.heads, -1))
            layers[layer.name] = [
                _Head(query[:, head], key[:, head], value[:, head], output[head]) for head in range(contexts.heads)
            ]
    scores: dict[tuple[str, str], float] = {}
    random: dict[str, float] = {}
    known = [layer for layer in subject.layers if layer.name in layers]
    for place, later in enumerate(known):
        for earlier in known[:place]:
            if layers[earlier.name][0].output.shape[-1] != len(layers[later.name][0].query):
                left_out.setdefault(later.name, f"its stream has another width than that of {earlier.name}")
                continue
            kinds: Sequence[Kind] = KINDS if (earlier.kind == "encoder") == (later.kind == "encoder") else ()
            if later.kind == "cross":
                kinds = KINDS[1:] if earlier.kind == "encoder" else KINDS[:1]
            for kind in kinds:
                random[later.name] = _random_score(*layers[later.name][0].query.shape)
                for receiver, second in enumerate(layers[later.name]):
                    for sender, first in enumerate(layers[earlier.name]):
                        pair = f"{earlier.name}.{sender}", f"{later.name}.{receiver}.{kind}"
                        scores[pair] = composition_score(first, second, kind)
    if not scores:
        raise InputError(
            f"{subject.name} has no head that reads from an earlier head: choose a model with two attention "
            f"layers with projections"
        )
    return Composition(scores=scores, random=random, left_out=left_out)


def composition_score(sender: _Head, receiver: _Head, kind: Kind) -> float:
    """Return the composition score of two heads through one input of the second head."""
    left, right = {
        "query": (receiver.query, receiver.key.T),
        "key": (receiver.key, receiver.query.T),
        "value": (receiver.value, receiver.output),
    }[kind]
    product = _norm(sender.value, sender.output @ left, right)
    identity = torch.eye(len(sender.output), dtype=left.dtype, device=left.device)
    return product / (_norm(sender.value, identity, sender.output) * _norm(left, identity, right))


def _norm(left: Tensor, middle: Tensor, right: Tensor) -> float:
    """Return the Frobenius norm of left (D, d) @ middle (d, d) @ right (d, D) without the product (D, D)."""
    return math.sqrt(max(float(((left.T @ left @ middle) * (middle @ right @ right.T)).sum()), 0.0))


@functools.cache
def _random_score(width: int, head_width: int) -> float:
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        return torch.randn(width, head_width, generator=generator, dtype=torch.float64)

    # Random matrices have no norm or bias either, so that the scores of trained heads are comparable with theirs.
    pairs = [[_Head(draw(), draw(), draw(), draw().T) for _ in range(2)] for _ in range(DRAWS)]
    return sum(composition_score(first, second, "value") for first, second in pairs) / DRAWS
