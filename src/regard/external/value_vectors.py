"""Values of the attention layers of external models, found among the outputs of their projections.

A candidate is accepted only if weights times values are the contexts that the model computes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.attention import Records, short_name
from regard.attention.components import HeadContexts
from regard.external.hooks import DetachableHook, remove_hooks
from regard.external.shrinking import FUSED, VALUES, find_part

FUSED_NAMES = (FUSED, "query_key_value", "qkv_proj", "qkv", "Wqkv")
"""Names of projections that compute queries, keys and values at once."""
AGREEMENT = 1e-3
"""Largest accepted difference between weights times values and the contexts of a run, as a fraction of the
largest context."""
Recording = Callable[[], AbstractContextManager[Records]]


def read_weighted_values(
    model: nn.Module, layers: Mapping[str, HeadContexts], recording: Recording, run: Callable[[], object]
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Run a model on one input; return, by layer, its weights (H, Tq, Tk) and its values (H, Tk, Dv).

    The values are None if they are not known, as for `nn.MultiheadAttention`. A layer that runs several times is
    `name`, `name#1`, ...
    """
    modules = {short_name(name): module for name, module in model.named_modules()}
    contexts: dict[str, list[Tensor]] = {}
    outputs: dict[str, list[tuple[bool, Tensor]]] = {}

    def keep_context(name: str, module: nn.Module, args: Any) -> None:
        contexts.setdefault(name, []).append(args[0][0])

    def keep_values(name: str, fused: bool, module: nn.Module, args: Any, output: Tensor) -> None:
        outputs.setdefault(name, []).append((fused, output[0]))

    hooks: list[Any] = []
    for name, layer in layers.items():
        single = find_part(modules[name], VALUES)
        source = find_part(modules[name], FUSED_NAMES) if single is None else single
        if layer.is_torch or source is None:
            continue
        hooks.append(layer.projection.register_forward_pre_hook(DetachableHook(partial(keep_context, name))))
        hooks.append(source.register_forward_hook(DetachableHook(partial(keep_values, name, single is None))))
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
            values = _find_values(item.weights[0], contexts[layer_name][number], *outputs[layer_name][number])
        found[name] = item.weights[0], values
    return found


def read_values(
    model: nn.Module, layers: Mapping[str, HeadContexts], recording: Recording, run: Callable[[], object]
) -> dict[str, Tensor]:
    """Return, by layer, the known values (H, Tk, Dv); see `read_weighted_values`."""
    found = read_weighted_values(model, layers, recording, run)
    return {name: values for name, (_, values) in found.items() if values is not None}


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
