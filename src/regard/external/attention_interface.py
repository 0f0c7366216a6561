"""Capture transformers models through their attention interface.

While such a model is recorded, each look-up of its attention function returns a wrapper. The wrapper calls the
function that the model would have called and returns its result. It takes the weights from that result, or
computes them with the model's own `eager_attention_forward`, so that caps, sinks, biases and grouped heads are
right without code for each of them here. Configs are not changed, because layers and masks depend on them.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.external.capture_session import CaptureSession, RowFunction, replace_rows, select_rows
from regard.external.forward_tracker import InertWhenCopied, ThreadList, capturing_elsewhere, remove_hooks
from regard.external.interface_call import (
    TRANSFORMERS,
    InterfaceCall,
    Output,
    eager_name,
    find_eager_function,
    find_interface_caller,
)

MEMORY_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""Arguments of layers that hold another sequence to attend to."""


def is_transformers_model(module: nn.Module) -> bool:
    """Return whether a module is a transformers model, without importing transformers."""
    transformers = sys.modules.get(TRANSFORMERS)
    return transformers is not None and isinstance(module, transformers.PreTrainedModel)


def uses_interface(module: nn.Module) -> bool:
    """Return whether a module looks up its attention function."""
    return find_eager_function(type(module)) is not None


class _Recording:
    """A session, and the layers of its model that use the interface."""

    def __init__(self, session: CaptureSession, names: dict[int, str]) -> None:
        self.session, self.names = session, names
        self.cross_layers: set[int] = set()
        """Ids of layers that attend to another sequence in the running pass."""


_recordings = ThreadList[_Recording]()
"""The recordings of this thread."""
_lock = threading.Lock()
_patches: list[tuple[Any, str, Any]] = []
"""What is patched while any thread records: owner, name and original."""
_recording_count = 0


@contextmanager
def capture_interface(session: CaptureSession) -> Iterator[set[str]]:
    """Capture the layers of a model that use the interface; yields their names."""
    layers = {name: module for name, module in session.tracker.modules.items() if uses_interface(module)}
    if not layers:
        yield set()
        return
    recording = _Recording(session, {id(module): name for name, module in layers.items()})
    hook = CrossAttentionHook(recording)
    hooks = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in layers.values()]
    _recordings.active.append(recording)
    try:
        with remove_hooks(hooks), _patched_lookups({type(module) for module in layers.values()}):
            yield set(layers)
    finally:
        _recordings.active.remove(recording)


@contextmanager
def _patched_lookups(classes: set[type]) -> Iterator[None]:
    """Make every look-up of an attention function return a wrapper in threads that record."""
    global _recording_count
    from transformers import AttentionInterface

    with _lock:
        _recording_count += 1
        if _recording_count == 1:
            _patch(AttentionInterface, "get_interface", _wrap_get_interface)
            _patch(AttentionInterface, "__getitem__", _wrap_getitem)
        for function in filter(None, map(find_interface_caller, classes)):
            # Before transformers 5, layers look nothing up if the config says "eager": patch that function too.
            if "get_interface" not in function.__code__.co_names:
                _patch(sys.modules[function.__module__], eager_name(function), _wrap_eager)
    try:
        yield
    finally:
        with _lock:
            _recording_count -= 1
            while not _recording_count and _patches:
                setattr(*_patches.pop())


def _patch(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    if not any((owner, name) == patch[:2] for patch in _patches):
        original = vars(owner).get(name) or getattr(owner, name)
        _patches.append((owner, name, original))
        setattr(owner, name, wrap(original))


class _CapturedFunction:
    """Wrapper of an attention function, with the eager function of the same layer."""

    def __init__(self, function: Any, eager: Any) -> None:
        self.function, self.eager = _unwrap(function), _unwrap(eager)

    def __call__(self, module: nn.Module, *args: Any, **options: Any) -> Output:
        """Compute attention as the function does, and record it."""
        eager = self.eager or _unwrap(find_eager_function(type(module)))
        return attend(self.function, eager, module, *args, **options)


def _wrap(function: Any, eager: Any) -> Any:
    if isinstance(function, _CapturedFunction):
        return _CapturedFunction(function.function, eager) if function.eager is None else function
    return _CapturedFunction(function, eager) if _recordings.active and callable(function) else function


def _wrap_get_interface(original: Any) -> Any:
    return lambda self, name, default: _wrap(original(self, name, default), default)


def _wrap_getitem(original: Any) -> Any:
    return lambda self, name: _wrap(original(self, name), None)


def _wrap_eager(original: Any) -> Any:
    def eager(*args: Any, **options: Any) -> Any:
        return (_CapturedFunction(original, original) if _recordings.active else original)(*args, **options)

    eager.original = original  # type: ignore[attr-defined]
    return eager


def _unwrap(function: Any) -> Any:
    """Return the original of an eager function that is patched."""
    return getattr(function, "original", function)


class CrossAttentionHook(InertWhenCopied):
    """Hook that notes whether a layer attends to another sequence."""

    def __init__(self, recording: _Recording | None = None) -> None:
        self.recording = recording

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Inspect the arguments of a layer before it runs."""
        if self.recording is None or not self.recording.session.tracker.active:
            return
        cls: Any = type(module)
        arguments = dict(zip(parameter_names(cls), args, strict=False)) | kwargs
        self.recording.cross_layers.discard(id(module))
        if any(arguments.get(name) is not None for name in MEMORY_ARGUMENTS):
            self.recording.cross_layers.add(id(module))


@cache
def parameter_names(cls: Any) -> tuple[str, ...]:
    """Return the parameters of a module class's `forward`."""
    return tuple(inspect.signature(cls.forward).parameters)[1:]


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
    """Call the model's attention `function`, and give the weights to the sessions that record the layer."""
    requests = []
    for recording in _recordings.active:
        layer = recording.names.get(id(module))
        name = None if layer is None else recording.session.next_call_name(layer)
        if name is not None:
            requests.append((recording, name))
    with capturing_elsewhere(recording.session.tracker for recording in _recordings.active):
        output, returned = function(module, query, key, value, attention_mask, **options)
        if not requests:
            return output, returned
        call = InterfaceCall(module, query, key, value, attention_mask, options, function, eager)
        call.compare(output, partial(_warn_mismatch, requests, function))
        intervening = [recording for recording, _ in requests if recording.session.intervenes]
        rows: RowFunction = call.weights
        if intervening or not all(recording.session.by_rows for recording, _ in requests):
            with torch.set_grad_enabled(bool(intervening) and torch.is_grad_enabled()):
                weights = call.returned(returned)
                weights = call.weights(slice(None))[0] if weights is None else weights
            if intervening:
                output, weights = _intervene(call, intervening, output, weights)
                if isinstance(returned, Tensor) and returned.shape == weights.shape:
                    returned = weights
            rows = _known_rows(weights, call.allowed)
        elif function is not eager and (weights := call.returned(returned)) is not None:
            rows = _known_rows(weights, call.allowed)
        else:
            call.forget_mask()
        for recording, name in requests:
            with torch.no_grad():
                is_cross = id(module) in recording.cross_layers
                recording.session.record_call(name, call.describe(rows, is_cross, recording.session.tracker))
        call.forget_values()
    return output, returned


def _warn_mismatch(requests: Sequence[tuple[_Recording, str]], function: Any, share: float) -> None:
    name = getattr(function, "__name__", type(function).__name__)
    cause = (
        f"{name} computes something else than the model's eager function, by {share:.1%} of the largest output"
    )
    for recording, call_name in requests:
        recording.session.warn_mismatch(call_name, cause)


def _intervene(
    call: InterfaceCall, recordings: Sequence[_Recording], output: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output (B, Tq, H, D) and the weights after all interventions, applied in order.

    Unchanged rows keep the output of the model's own function, bit for bit.
    """
    before = weights
    for recording in recordings:
        session = recording.session
        first = call.first_key(id(call.module) in recording.cross_layers, session.tracker)
        weights = session.change_weights(weights, call.allowed, first)
    changed = call.context(weights).to(output.dtype)
    return replace_rows(output, changed, (weights != before).any(-1).transpose(1, 2)), weights


def _known_rows(weights: Tensor, allowed: Tensor | None) -> RowFunction:
    return lambda rows: (weights[:, :, rows], allowed if allowed is None else select_rows(allowed, rows))
