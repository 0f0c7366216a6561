"""Checks of custom parts of an attention mechanism: a part that fails raises an error before training.

Each part is called with small tensors whose sizes all differ. B 2 inputs, H 2 heads, T 5 steps.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import causal_mask
from regard.attention.mechanism import Mechanism, PartChoice
from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import Gate, LayerSizes, MaskPart, Normalizer, PositionBias, positions_of
from regard.attention.recording import record_own
from regard.attention.scores import Score
from regard.errors import InputError
from regard.plugins import PluginError, describe_error

BATCH, HEADS, STEPS, HEAD_WIDTH = 2, 2, 5, 6
WIDTH = 14
"""Width of the states."""


def check_custom_attention(mechanism: Mechanism) -> None:
    """Raise `PluginError` unless each custom part of a mechanism works separately."""
    for choice in mechanism.choices:
        if ":" in choice.name:
            check_part(choice)


def check_part(choice: PartChoice) -> None:
    """Raise `PluginError` unless a part accepts and returns tensors of the shapes in the docstring of its base
    class."""
    if not choice.kinds:
        raise PluginError(f"attention part {choice.name!r} names no kind of layer in its kinds: name one or more")
    kind = choice.kinds[0]
    sizes = LayerSizes(width=WIDTH, memory_width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH, kind=kind)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        part = choice.build(sizes)
        weights = (BATCH, HEADS, STEPS, STEPS)
        steps, states = positions_of(STEPS, STEPS, torch.device("cpu")), torch.zeros(BATCH, STEPS, WIDTH)
        heads = torch.zeros(BATCH, HEADS, STEPS, HEAD_WIDTH)
        if isinstance(part, Score):
            _call(choice, "scores", lambda: part(heads, part.prepare(heads)), weights)
        elif isinstance(part, MaskPart):
            allowed = _call(choice, "mask", lambda: part.allowed(*steps), (STEPS, STEPS))
            if allowed.dtype != torch.bool:
                raise PluginError(
                    f"attention part {choice.name!r} gives a mask of {allowed.dtype}: expected bool"
                )
        elif isinstance(part, PositionBias):
            _call(choice, "biases", lambda: part(*steps), (HEADS, STEPS, STEPS))
        elif isinstance(part, Normalizer):
            mask = causal_mask(STEPS, STEPS).tril(-1)  # row 0 is fully masked
            result = _call(choice, "weights", lambda: part(torch.zeros(weights), mask[None, None]), weights)
            _check_masked(choice, result, mask)
        elif isinstance(part, Gate):
            _call(choice, "context", lambda: part(heads, states), tuple(heads.shape))
        layer = MultiHeadAttention(WIDTH, HEADS, head_width=HEAD_WIDTH, mechanism=Mechanism((choice,)), kind=kind)
        with record_own(layer) as records:
            _call(choice, "output of the layer", lambda: layer(torch.randn(BATCH, STEPS, WIDTH)), states.shape)
        [record] = records.values()
        if tuple(record.weights.shape) != weights:
            raise PluginError(_wrong_shape(choice, "weights", record.weights, weights))
        if kind == "causal":
            _check_masked(choice, record.weights, causal_mask(STEPS, STEPS))


def _call(choice: PartChoice, what: str, call: Callable[[], Any], expected: tuple[int, ...]) -> Tensor:
    """Return the result of a call. Raises `PluginError` unless it is a tensor of the expected shape."""
    try:
        result = call()
    except InputError:
        raise
    except Exception as error:  # custom code can raise anything
        raise PluginError(
            f"attention part {choice.name!r} fails in a layer with {HEADS} heads of width {HEAD_WIDTH} on "
            f"{STEPS} steps: {describe_error(error)}; fix it"
        ) from error
    if not isinstance(result, Tensor):
        raise PluginError(
            f"attention part {choice.name!r} gives {what} of type {type(result).__name__}: expected a tensor "
            f"{tuple(expected)}"
        )
    if tuple(result.shape) != tuple(expected):
        raise PluginError(_wrong_shape(choice, what, result, expected))
    return result


def _check_masked(choice: PartChoice, weights: Tensor, mask: Tensor) -> None:
    """Raise `PluginError` unless weights are zero where the mask (Tq, Tk) is False."""
    if not (weights.masked_fill(mask, 0.0) == 0).all():
        raise PluginError(
            f"attention part {choice.name!r} gives masked keys a weight, or NaN in a fully masked row: masked "
            f"keys need the weight 0"
        )


def _wrong_shape(choice: PartChoice, what: str, result: Tensor, expected: tuple[int, ...]) -> str:
    return (
        f"attention part {choice.name!r} gives {what} of shape {tuple(result.shape)}: expected {tuple(expected)}"
    )
