"""Attention weights times the norms of the transformed values (Kobayashi et al. 2020, equations 4 and 5).

    || a_ij f(x_j) || = a_ij || v_j W_O ||

A key with a large weight adds little to the output if the norm of its value is small. The function f is the
value projection of a head (with bias), followed by the head's part of the output projection (without bias).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import AttentionTrace, short_name
from regard.attention.descriptions import context_changes
from regard.attention.multihead import MultiHeadAttention
from regard.external.adapters import call_model
from regard.external.hooks import DetachableHook, remove_hooks
from regard.external.model import ExternalModel
from regard.external.model_components import head_projections
from regard.external.model_input import find_input
from regard.external.shrinking import FUSED, VALUES, find_part
from regard.interpret.answer_trace import trace_answer
from regard.result import Result
from regard.viz import Subject

FUSED_NAMES = (FUSED, "query_key_value", "qkv_proj", "qkv", "Wqkv")
"""Names of projections that compute queries, keys and values at once."""
AGREEMENT = 1e-3
"""Largest accepted difference between weights times values and the contexts of a run, as a fraction of the
largest context.
"""
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
        answer = trace_answer(subject, input, [layer.name for layer in subject.layers])
        text = answer.shown.input
        traced = zip(subject.layers, answer.layers, strict=True)
        layers = {
            name: _read_own(answer.shown.layers[name].weights, layer, trace.insides)
            for (name, _, _), (layer, trace) in traced
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


def _read_own(weights: np.ndarray, layer: nn.Module, calls: Sequence[AttentionTrace]) -> Norms:
    if not calls:
        return weights, None
    values = calls[-1].value[0]  # the last step has the values of all keys
    values = values.repeat_interleave(len(weights) // len(values), 0)
    if not isinstance(layer, MultiHeadAttention):  # no output projection: the values themselves are added
        return weights, values.float().norm(dim=-1)
    return weights, _projected_norms(layer.output, values)


def _read_external(subject: ExternalModel, value: Any) -> tuple[str, dict[str, Norms]]:
    model, model_input = subject.model, find_input(subject.inputs, value)
    arguments = subject.adapter.answer(model, model_input, subject.generate).prepared.arguments
    projections = head_projections(model, subject.layers)
    modules = {short_name(name): module for name, module in model.named_modules()}
    contexts: dict[str, list[Tensor]] = {}
    outputs: dict[str, list[tuple[bool, Tensor]]] = {}

    def keep_context(name: str, module: nn.Module, args: Any) -> None:
        contexts.setdefault(name, []).append(args[0][0])

    def keep_values(name: str, fused: bool, module: nn.Module, args: Any, output: Tensor) -> None:
        outputs.setdefault(name, []).append((fused, output[0]))

    hooks: list[Any] = []
    for name, projection in projections.items():
        single = find_part(modules[name], VALUES)
        source = find_part(modules[name], FUSED_NAMES) if single is None else single
        hooks.append(projection.register_forward_pre_hook(DetachableHook(partial(keep_context, name))))
        if source is not None:
            hook = DetachableHook(partial(keep_values, name, single is None))
            hooks.append(source.register_forward_hook(hook))
    with ExitStack() as stack:
        stack.enter_context(remove_hooks(hooks))
        records = stack.enter_context(subject.recording())
        call_model(model, arguments)
    layers: dict[str, Norms] = {}
    calls: dict[str, int] = {}
    for full_name, item in records.items():
        name = short_name(full_name)
        layer = name.split("#")[0]
        number = calls.setdefault(layer, 0)
        calls[layer] += 1
        weights = item.weights[0]
        norms = None
        if len(outputs.get(layer, ())) > number and len(contexts.get(layer, ())) > number:
            values = _find_values(weights, contexts[layer][number], *outputs[layer][number])
            norms = None if values is None else _projected_norms(projections[layer], values)
        layers[name] = weights.float().cpu().numpy(), norms
    return model_input.text, layers


def _find_values(weights: Tensor, context: Tensor, fused: bool, output: Tensor) -> Tensor | None:
    """Return the values (H, Tk, Dv) in an output (Tk, any): those whose weighted sums are the contexts."""
    heads = len(weights)
    expected = context.unflatten(-1, (heads, -1)).transpose(0, 1)
    largest = float(expected.abs().max())
    for values in _possible_values(output, fused, heads, expected.shape[-1]):
        if values.shape[1] == weights.shape[-1]:
            actual = weights.to(values.dtype) @ values
            if float((actual - expected).abs().max()) <= AGREEMENT * max(largest, 1e-6):
                return values
    return None


def _possible_values(output: Tensor, fused: bool, heads: int, width: int) -> Iterator[Tensor]:
    """Yield values (H, Tk, Dv) in the layouts of known models."""
    if not fused:
        layouts = [output]
    else:  # GPT-2 and Phi-3: all queries, all keys, all values; GPT-NeoX: the three of each head
        groups = (output.shape[-1] // width - heads) // 2
        layouts = [output[:, -groups * width :]] if groups > 0 else []
        if output.shape[-1] == 3 * heads * width:
            layouts.append(output.unflatten(-1, (heads, 3, width))[:, :, 2].flatten(1))
    for layout in layouts:
        count = layout.shape[-1] // width
        if count and layout.shape[-1] == count * width and heads % count == 0:
            yield layout.unflatten(-1, (count, width)).transpose(0, 1).repeat_interleave(heads // count, 0)


def _projected_norms(projection: nn.Module, values: Tensor) -> Tensor:
    """Return (H, Tk): the norms of values (H, Tk, Dv) after each head's part of a projection, without bias."""
    heads, keys, width = values.shape
    alone = values.new_zeros(heads, keys, heads, width)
    for head in range(heads):
        alone[head, :, head] = values[head]
    bias = projection(values.new_zeros(1, 1, heads * width))
    norms: Tensor = (projection(alone.flatten(2)) - bias).float().norm(dim=-1)
    return norms
