"""Values of the attention layers of external models, found among the outputs of their projections.

A candidate is accepted only if weights times values are the contexts that the model computes.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
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


def read_values(
    layers: Mapping[str, HeadContexts], recording: Recording, find_inputs: FindInputs, run: Callable[[], object]
) -> dict[str, Tensor]:
    """Run a model on one input; return, by layer, its known values (H, Tk, Dv).

    A layer that runs several times is `name`, `name#1`, ...
    """
    inputs, _ = find_inputs()
    contexts: dict[str, list[Tensor]] = {name: [] for name in inputs}
    outputs: dict[str, list[Tensor]] = {name: [] for name in inputs}

    def keep_context(name: str, module: nn.Module, args: Any) -> None:
        contexts[name].append(args[0][0])

    def keep_values(name: str, module: nn.Module, args: Any, output: Tensor) -> None:
        outputs[name].append(output[0])

    hooks: list[Any] = []
    for name, known in inputs.items():
        value, projection = known.parts["value"].module, layers[name].projection
        hooks.append(projection.register_forward_pre_hook(DetachableHook(partial(keep_context, name))))
        hooks.append(value.register_forward_hook(DetachableHook(partial(keep_values, name))))
    with remove_hooks(hooks), recording() as records:
        run()
    found: dict[str, Tensor] = {}
    for full_name, item in records.items():
        name = short_name(full_name)
        layer, _, number = name.partition("#")
        calls = [calls.get(layer, [])[int(number or 0) :][:1] for calls in (contexts, outputs)]
        if all(calls):
            values = _find_values(item.weights[0], calls[0][0], calls[1][0], inputs[layer])
            found |= {} if values is None else {name: values}
    return found


def _find_values(weights: Tensor, context: Tensor, output: Tensor, inputs: HeadInputs) -> Tensor | None:
    """Return the values (H, Tk, Dv) in an output (Tk, any), if their weighted sums are the contexts."""
    expected = context.unflatten(-1, (len(weights), -1)).transpose(0, 1)
    values = inputs.split("value", output).transpose(0, 1)
    if values.shape[1:] != (weights.shape[-1], expected.shape[-1]):
        return None
    difference = float((weights.to(values.dtype) @ values - expected).abs().max())
    return values if difference <= AGREEMENT * max(float(expected.abs().max()), 1e-6) else None
