"""Attention weights times the norms of the transformed values (Kobayashi et al. 2020, equations 4 and 5).

    || a_ij f(x_j) || = a_ij || v_j W_O ||

A key with a large weight adds little to the output if the norm of its value is small. The function f is the
value projection of a head (with bias), followed by the head's part of the output projection (without bias).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.arguments import check_value
from regard.attention import AttentionTrace
from regard.attention.components import HeadContexts
from regard.attention.descriptions import context_changes
from regard.external.adapters import call_model
from regard.external.model import ExternalModel
from regard.external.model_input import find_input
from regard.external.value_vectors import read_weighted_values
from regard.interpret.answer_trace import trace_answer
from regard.result import Result
from regard.viz import Subject

NOT_RECORDED = "its values are not recorded"


@dataclass(frozen=True, kw_only=True, repr=False)
class WeightedValues(Result):
    """The norms of the values of each head, and the weights times these norms."""

    input: str
    norms: dict[str, np.ndarray]
    """By layer: (H, Tk), the norm of the value of each key after the head's output projection."""
    weighted: dict[str, np.ndarray]
    """By layer: (H, Tq, Tk), the attention weights times the norms."""
    left_out: dict[str, str]
    """Layers without values, with the reason."""

    def summary(self) -> str:
        """Return the numbers of layers in one line."""
        return f"{len(self.norms)} layers, {len(self.left_out)} left out"


@torch.no_grad()
def weighted_values(subject: Subject[Any], input: Any) -> WeightedValues:
    """Return the attention of each layer for an input, with each weight multiplied by the norm of its value.

    `subject`: a run, or a result of `look`. Values are checked: weights times values must equal the contexts
    that the model computes. Layers that fail this check are in `left_out`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.weighted_values(model, "The cat sat").weighted["transformer.h.0.attn"].shape    # doctest: +SKIP
    (12, 3, 3)

    Raises `InputError` for an input that the model rejects.
    """
    if isinstance(subject, ExternalModel):
        text, layers = _read_external(subject, input)
        changed: dict[str, str] = {}
    else:
        check_value("input", input, str | None)
        answer = trace_answer(subject, input, [layer.name for layer in subject.layers])
        text = answer.shown.input
        contexts = subject.components.heads
        traced = zip(subject.layers, answer.layers, strict=True)
        layers = {
            name: _read_own(answer.shown.layers[name].weights, contexts[name], trace.insides)
            for (name, _, _), (_, trace) in traced
        }
        changed = {
            layer.name: f"its context is changed by {', '.join(context_changes(module))}"
            for layer, (module, _) in zip(subject.layers, answer.layers, strict=True)
            if context_changes(module)
        }
    norms, weighted = {}, {}
    for name, (weights, value_norms) in layers.items():
        if value_norms is not None and name not in changed:
            norms[name] = value_norms.float().cpu().numpy()
            weighted[name] = weights * norms[name][:, None]
    left_out = {name: changed.get(name, NOT_RECORDED) for name in layers if name not in norms}
    return WeightedValues(input=text, norms=norms, weighted=weighted, left_out=left_out)


Norms = tuple[np.ndarray, Tensor | None]
"""Weights (H, Tq, Tk) of a layer, and the norms (H, Tk) of its values; None if the norms are unknown."""


def _read_own(weights: np.ndarray, layer: HeadContexts, calls: Sequence[AttentionTrace]) -> Norms:
    if not calls:
        return weights, None
    values = calls[-1].value[0]  # the last step has the values of all keys
    return weights, _norms(layer, values.repeat_interleave(len(weights) // len(values), 0))


def _norms(layer: HeadContexts, values: Tensor) -> Tensor:
    """Return (H, Tk): the norms of values (H, Tk, Dv) after each head's part of the output projection."""
    norms: Tensor = layer.outputs(values.transpose(0, 1)).float().norm(dim=-1)
    return norms.T


def _read_external(subject: ExternalModel, value: Any) -> tuple[str, dict[str, Norms]]:
    model, model_input = subject.model, find_input(subject.inputs, value)
    arguments = subject.adapter.answer(model, model_input, subject.generate).prepared.arguments
    contexts, run = subject.components.heads, partial(call_model, model, arguments)
    layers: dict[str, Norms] = {}
    for name, (weights, values) in read_weighted_values(model, contexts, subject.recording, run).items():
        norms = None if values is None else _norms(contexts[name.split("#")[0]], values)
        layers[name] = weights.float().cpu().numpy(), norms
    return model_input.text, layers
