"""Values of the attention layers of external models, found among the outputs of their projections.

A candidate is accepted only if weights times values are the contexts that the model computes.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.attention import Records, short_name
from regard.attention.components import FindInputs, HeadContexts
from regard.attention.head_inputs import HeadInputs
from regard.external.hooks import DetachableHook, remove_hooks

AGREEMENT = 1e-3
"""Largest accepted difference between weights times values and the contexts of a run, as a fraction of the
largest context."""
Recording = Callable[[], AbstractContextManager[Records]]


def read_weighted_values(
    model: nn.Module,
    layers: Mapping[str, HeadContexts],
    recording: Recording,
    find_inputs: FindInputs,
    run: Callable[[], object],
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Run a model on one input; return, by layer, its weights (H, Tq, Tk) and its values (H, Tk, Dv).

    The values are None if they are not known, as for `nn.MultiheadAttention`. A layer that runs several times is
    `name`, `name#1`, ...
    """
    inputs, _ = find_inputs()
    contexts: dict[str, list[Tensor]] = {}
    outputs: dict[str, list[Tensor]] = {}

    def keep_context(name: str, module: nn.Module, args: Any) -> None:
        contexts.setdefault(name, []).append(args[0][0])

    def keep_values(name: str, module: nn.Module, args: Any, output: Tensor) -> None:
        outputs.setdefault(name, []).append(output[0])

    hooks: list[Any] = []
    for name, known in inputs.items():
        value, projection = known.parts["value"].module, layers[name].projection
        hooks.append(projection.register_forward_pre_hook(DetachableHook(partial(keep_context, name))))
        hooks.append(value.register_forward_hook(DetachableHook(partial(keep_values, name))))
    with ExitStack() as stack:
        stack.enter_context(remove_hooks(hooks))
        records = stack.enter_context(recording())
        run()
    found: dict[str, tuple[Tensor, Tensor | None]] = {}
    calls: dict[str, int] = {}
    for full_name, item in records.items():
        name = short_name(full_name)
        layer_name = name.split("#")[0]
        number = calls.setdefault(layer_name, 0)
        calls[layer_name] += 1
        values = None
        if len(outputs.get(layer_name, ())) > number and len(contexts.get(layer_name, ())) > number:
            args = contexts[layer_name][number], outputs[layer_name][number], inputs[layer_name]
            values = _find_values(item.weights[0], *args)
        found[name] = item.weights[0], values
    return found


def read_values(
    model: nn.Module,
    layers: Mapping[str, HeadContexts],
    recording: Recording,
    find_inputs: FindInputs,
    run: Callable[[], object],
) -> dict[str, Tensor]:
    """Return, by layer, the known values (H, Tk, Dv); see `read_weighted_values`."""
    found = read_weighted_values(model, layers, recording, find_inputs, run)
    return {name: values for name, (_, values) in found.items() if values is not None}


def _find_values(weights: Tensor, context: Tensor, output: Tensor, inputs: HeadInputs) -> Tensor | None:
    """Return the values (H, Tk, Dv) in an output (Tk, any), if their weighted sums are the contexts."""
    expected = context.unflatten(-1, (len(weights), -1)).transpose(0, 1)
    values = inputs.split("value", output).transpose(0, 1)
    if values.shape[1:] != (weights.shape[-1], expected.shape[-1]):
        return None
    difference = float((weights.to(values.dtype) @ values - expected).abs().max())
    return values if difference <= AGREEMENT * max(float(expected.abs().max()), 1e-6) else None
