"""Attention weights times the norms of the transformed values (Kobayashi et al. 2020, equations 4 and 5).

    || a_ij f(x_j) || = a_ij || v_j W_O ||

A key with a large weight adds little to the output if the norm of its value is small. The function f is the
value projection of a head (with bias), followed by the head's part of the output projection (without bias).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.activations.interface import read_values
from regard.arguments import check_value, public
from regard.attention.descriptions import context_changes
from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.external.model import ExternalModel
from regard.result import Result
from regard.viz.subject import ViewedSubject

NOT_RECORDED = "its values are not recorded"


@public
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
        return f"{len(self.norms)} layers, {len(self.left_out)} left out"


@public
@torch.no_grad()
def weighted_values(subject: ViewedSubject[Any], input: Any) -> WeightedValues:
    """Return the attention of each layer for an input, with each weight multiplied by the norm of its value.

    `subject`: a run, or a result of `look`. Values are checked: weights times values must equal the contexts
    that the model computes. Layers that fail this check are in `left_out`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.weighted_values(model, "The cat sat").weighted["transformer.h.0.attn"].shape    # doctest: +SKIP
    (12, 3, 3)

    Raises `InputError` for an input that the model rejects.
    """
    if not isinstance(subject, ExternalModel):
        check_value("input", input, str | None)
    shown = subject.attend(input)
    components = subject.components
    changed = {
        short_name(name): f"its context is changed by {', '.join(changes)}"
        for name, layer in attention_layers(subject.model).items()
        if (changes := context_changes(layer))
    }
    norms, weighted = {}, {}
    # A model without separate heads may have no pass that can be repeated.
    run = subject.forward_pass(shown.input if input is None else input).run if components.heads else None
    for name, values in ({} if run is None else read_values(subject.model, run)).items():
        outputs = components.heads[name.split("#")[0]].outputs(values.transpose(0, 1))
        norms[name] = outputs.float().norm(dim=-1).T.cpu().numpy()
        weighted[name] = shown.layers[name].weights * norms[name][:, None]
    left_out = {name: changed.get(name, NOT_RECORDED) for name in shown.layers if name not in norms}
    return WeightedValues(input=shown.input, norms=norms, weighted=weighted, left_out=left_out)
