"""Capture transformers models through their attention interface.

While such a model is recorded, each look-up of its attention function returns a wrapper. The wrapper calls the
function that the model would have called and returns its result. The wrapper takes the weights from that
result, or computes the weights with the model's own `eager_attention_forward`. Logit caps, attention sinks,
biases and grouped heads are then correct without extra code. Configs are not changed, because layers and masks
depend on them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.activations.capture_session import CaptureSession, RowFunction, replace_rows, row_function
from regard.activations.forward_tracker import capturing_elsewhere
from regard.activations.hooks import LibraryPatches, Patch, ThreadList, remove_hooks
from regard.activations.interface_call import (
    InterfaceCall,
    Output,
    eager_name,
    find_eager_function,
    find_interface_caller,
)
from regard.activations.modules import parameter_names

MEMORY_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""Names of arguments through which layers receive another sequence to attend to."""


def uses_interface(module: nn.Module) -> bool:
    return find_eager_function(type(module)) is not None


class _Layers:
    """Captures the layers of a model that use the attention interface."""

    def __init__(self, session: CaptureSession) -> None:
        self.session = session
        self.modules = [module for module in session.tracker.modules.values() if uses_interface(module)]
        self.ids = set(map(id, self.modules))
        self.cross: set[int] = set()
        """Ids of layers that attend to another sequence in the current pass."""

    def note_memory(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        arguments = dict(zip(parameter_names(module), args, strict=False)) | kwargs
        self.cross.discard(id(module))
        if any(arguments.get(name) is not None for name in MEMORY_ARGUMENTS):
            self.cross.add(id(module))


_recorded = ThreadList[_Layers]()
# Patch the look-ups instead of registering a new implementation in each config: layers and masks depend on the
# configured name. DeepSeek V3.2 uses sparse attention under "eager" and "sdpa" only.
_patches = LibraryPatches()


def applies(session: CaptureSession) -> bool:
    return any(map(uses_interface, session.tracker.modules.values()))


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    layers = _Layers(session)
    hooks = [session.tracker.hook_before(module, layers.note_memory) for module in layers.modules]
    with _recorded.include(layers), remove_hooks(hooks), _patches.apply(_lookups(set(map(type, layers.modules)))):
        yield {name for module in layers.modules for name in session.tracker.names[id(module)]}


def _lookups(classes: set[type]) -> Iterator[Patch]:
    """Yield the functions with which layers look up their attention function, and the wrappers of these
    functions."""
    from transformers import AttentionInterface

    yield AttentionInterface, "get_interface", _wrap_get_interface
    yield AttentionInterface, "__getitem__", _wrap_getitem
    for function in filter(None, map(find_interface_caller, classes)):
        # Before transformers 5, layers call the eager function directly if the config says "eager": patch that
        # function too.
        if "get_interface" not in function.__code__.co_names:
            yield sys.modules[function.__module__], eager_name(function), _wrap_eager


class _CapturedFunction:
    """Wrapper of an attention function; holds the eager function of the same layer."""

    def __init__(self, function: Any, eager: Any) -> None:
        self.function, self.eager = _unwrap(function), _unwrap(eager)

    def __call__(self, module: nn.Module, *args: Any, **options: Any) -> Output:
        eager = self.eager or _unwrap(find_eager_function(type(module)))
        return attend(self.function, eager, module, *args, **options)


def _wrap(function: Any, eager: Any) -> Any:
    if isinstance(function, _CapturedFunction):
        return _CapturedFunction(function.function, eager) if function.eager is None else function
    return _CapturedFunction(function, eager) if _recorded.active and callable(function) else function


def _wrap_get_interface(original: Any) -> Any:
    return lambda self, name, default: _wrap(original(self, name, default), default)


def _wrap_getitem(original: Any) -> Any:
    return lambda self, name: _wrap(original(self, name), None)


def _wrap_eager(original: Any) -> Any:
    def eager(*args: Any, **options: Any) -> Any:
        return (_CapturedFunction(original, original) if _recorded.active else original)(*args, **options)

    eager.original = original  # type: ignore[attr-defined]
    return eager


def _unwrap(function: Any) -> Any:
    return getattr(function, "original", function)


def attend(
    function: Any,
    eager: Any,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **options: Any,
) -> Output:
    """Call the model's attention `function`, and pass the weights to the sessions that record the layer."""
    requests = []
    for layers in _recorded.active:
        layer = layers.session.tracker.name_of(module) if id(module) in layers.ids else None
        name = None if layer is None else layers.session.next_call_name(layer)
        if name is not None:
            requests.append((layers, name))
    with capturing_elsewhere(layers.session.tracker for layers in _recorded.active):
        sessions = [layers.session for layers, _ in requests if layers.session.receives]
        for session in sessions:
            query, key, value = (
                session.receive(kind, part) for kind, part in (("q", query), ("k", key), ("v", value))
            )
        output, returned = function(module, query, key, value, attention_mask, **options)
        requests = [
            (layers, name)
            for layers, name in requests
            if layers.session.intervenes or not layers.session.receives
        ]
        if not requests:
            return _receive_contexts(sessions, output, query.shape[1]), returned
        call = InterfaceCall(module, query, key, value, attention_mask, options, function, eager)
        call.compare(output, partial(_warn_mismatch, requests, function))
        intervening = [layers for layers, _ in requests if layers.session.intervenes]
        rows: RowFunction = call.weights
        if intervening or not all(layers.session.by_rows for layers, _ in requests):
            with torch.set_grad_enabled(bool(intervening) and torch.is_grad_enabled()):
                weights = call.returned(returned)
                weights = call.weights(slice(None))[0] if weights is None else weights
            if intervening:
                output, weights = _intervene(call, intervening, output, weights)
                if isinstance(returned, Tensor) and returned.shape == weights.shape:
                    returned = weights
            rows = row_function(weights, call.allowed)
        elif function is not eager and (weights := call.returned(returned)) is not None:
            rows = row_function(weights, call.allowed)
        else:
            call.forget_mask()
        for layers, name in requests:
            with torch.no_grad():
                described = call.describe(rows, id(module) in layers.cross, layers.session.tracker)
                layers.session.record_call(name, described)
        call.forget_values()
    return _receive_contexts(sessions, output, query.shape[1]), returned


def _receive_contexts(sessions: Sequence[CaptureSession], output: Tensor, heads: int) -> Tensor:
    """Return the contexts (B, Tq, H, D) after all sessions have received them."""
    if not sessions:
        return output
    by_head = output if output.dim() == 4 else output.unflatten(-1, (heads, -1))
    changed = by_head.transpose(1, 2)
    for session in sessions:
        changed = session.receive("z", changed)
    return changed.transpose(1, 2).reshape(output.shape)


def _warn_mismatch(requests: Sequence[tuple[_Layers, str]], function: Any, share: float) -> None:
    name = getattr(function, "__name__", type(function).__name__)
    cause = f"output of {name} differs from the model's eager function, by {share:.1%} of the largest output"
    for layers, call_name in requests:
        layers.session.warn_mismatch(call_name, cause)


def _intervene(
    call: InterfaceCall, intervening: Sequence[_Layers], output: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output (B, Tq, H, D) and the weights after all interventions, applied in order.

    Unchanged rows keep the output of the model's own function, bit for bit.
    """
    before = weights
    for layers in intervening:
        layers.session.inputs = call.inputs
        first = call.first_key(id(call.module) in layers.cross, layers.session.tracker)
        weights = layers.session.change_weights(weights, call.allowed, first)
    changed = call.context(weights).to(output.dtype)
    return replace_rows(output, changed, (weights != before).any(-1).transpose(1, 2)), weights
