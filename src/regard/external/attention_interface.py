"""Models of Hugging Face's, through the interface that they offer for attention of one's own.

While such a model is recorded, each look-up of its attention function returns one of ours. It calls the function
that the model would have called, returns what that returned, and takes the weights from it, or works them out
with the model's own `eager_attention_forward`: so caps, sinks, biases and grouped heads are right without our
knowing of them. Configs keep their names, since layers and masks depend on these.
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
from regard.external.forward_tracker import capturing_elsewhere
from regard.external.interface_call import (
    PEERS,
    Inputs,
    Output,
    eager_name,
    find_eager_function,
    find_interface_caller,
)

SOURCES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""What layers call that which another sequence is read from."""


def is_transformers_model(module: nn.Module) -> bool:
    """Say whether a module is a model of Hugging Face's; transformers is not imported for that."""
    peers = sys.modules.get(PEERS)
    return peers is not None and isinstance(module, peers.PreTrainedModel)


def uses_interface(module: nn.Module) -> bool:
    """Say whether a module lets the interface choose what computes its attention."""
    return find_eager_function(type(module)) is not None


_lock = threading.Lock()
_local = threading.local()
_replaced: list[tuple[Any, str, Any]] = []
"""What is replaced as long as anybody records: owner, name and the original."""
_count = 0


@contextmanager
def capture_interface(model: nn.Module, session: CaptureSession) -> Iterator[set[str]]:
    """Record in the block those layers of a model that ask the interface; yields their names."""
    layers = {name: module for name, module in session.tracker.modules.items() if uses_interface(module)}
    if not layers:
        yield set()
        return
    recording = _Recording(session, {id(module): name for name, module in layers.items()})
    hooks = [
        module.register_forward_pre_hook(CrossAttentionHook(recording), with_kwargs=True)
        for module in layers.values()
    ]
    here = _here()
    here.append(recording)
    try:
        with _looking_up({type(module) for module in layers.values()}):
            yield set(layers)
    finally:
        here.remove(recording)
        for hook in hooks:
            hook.remove()


@contextmanager
def _looking_up(kinds: set[type]) -> Iterator[None]:
    """Let every look-up of an attention function return ours in the block, for threads that record."""
    global _count
    from transformers import AttentionInterface

    with _lock:
        _count += 1
        if _count == 1:
            _replace(AttentionInterface, "get_interface", _get_interface)
            _replace(AttentionInterface, "__getitem__", _get_item)
        for function in filter(None, map(find_interface_caller, kinds)):
            # Code of transformers before 5 looks nothing up where the config says "eager".
            if "get_interface" not in function.__code__.co_names:
                _replace(sys.modules[function.__module__], eager_name(function), _own_eager)
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            while not _count and _replaced:
                setattr(*_replaced.pop())


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    if not any((owner, name) == replaced[:2] for replaced in _replaced):
        original = vars(owner).get(name) or getattr(owner, name)
        _replaced.append((owner, name, original))
        setattr(owner, name, make(original))


class _Lookup:
    """An attention function that was looked up while somebody records, and the eager one of the same layer."""

    def __init__(self, function: Any, eager: Any) -> None:
        self.function, self.eager = _unwrapped(function), _unwrapped(eager)

    def __call__(self, module: nn.Module, *args: Any, **options: Any) -> Output:
        """Attend as the function does, and record it."""
        return attend(
            self.function, self.eager or _unwrapped(find_eager_function(type(module))), module, *args, **options
        )


def _looked_up(function: Any, eager: Any) -> Any:
    if isinstance(function, _Lookup):
        return _Lookup(function.function, eager) if function.eager is None else function
    return _Lookup(function, eager) if _here() and callable(function) else function


def _get_interface(original: Any) -> Any:
    return lambda self, name, default: _looked_up(original(self, name, default), default)


def _get_item(original: Any) -> Any:
    return lambda self, name: _looked_up(original(self, name), None)


def _own_eager(original: Any) -> Any:
    def eager(*args: Any, **options: Any) -> Any:
        return (_Lookup(original, original) if _here() else original)(*args, **options)

    eager.replaces = original  # type: ignore[attr-defined]
    return eager


def _unwrapped(function: Any) -> Any:
    """Return the eager function of a file of transformers' itself, also while ours stands in its place."""
    return getattr(function, "replaces", function)


def _here() -> "list[_Recording]":
    """Return who records in this thread."""
    if not hasattr(_local, "recordings"):
        _local.recordings = []
    found: list[_Recording] = _local.recordings
    return found


class _Recording:
    """One recording of one model."""

    def __init__(self, session: CaptureSession, names: dict[int, str]) -> None:
        self.session, self.names = session, names
        self.crossing: set[int] = set()
        """The layers that read from another sequence."""


class CrossAttentionHook:
    """Notes of a layer that is about to run whether it reads from another sequence. A copy of it does nothing."""

    def __init__(self, recording: _Recording | None = None) -> None:
        self.recording = recording

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return CrossAttentionHook, ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Look at what the layer is given."""
        if self.recording is None or not self.recording.session.tracker.here:
            return
        kind: Any = type(module)
        given = dict(zip(parameter_names(kind), args, strict=False)) | kwargs
        self.recording.crossing.discard(id(module))
        if any(given.get(each) is not None for each in SOURCES):
            self.recording.crossing.add(id(module))


@cache
def parameter_names(kind: Any) -> tuple[str, ...]:
    """Return the names of what modules of a class are called with."""
    return tuple(inspect.signature(kind.forward).parameters)[1:]


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
    """Attend as `function` does, the model's own, and hand weights over to whoever asked for them."""
    asked = []
    for recording in _here():
        layer = recording.names.get(id(module))
        name = None if layer is None else recording.session.next(layer)
        if name is not None:
            asked.append((recording, name))
    with capturing_elsewhere(recording.session.tracker for recording in _here()):
        output, returned = function(module, query, key, value, attention_mask, **options)
        if not asked:
            return output, returned
        inputs = Inputs(module, query, key, value, attention_mask, options, function, eager)
        inputs.compare(output, partial(_doubt, asked, function))
        touching = [recording for recording, _ in asked if recording.session.intervenes]
        rows: RowFunction = inputs.weights
        if touching or not all(recording.session.by_rows for recording, _ in asked):
            with torch.set_grad_enabled(bool(touching) and torch.is_grad_enabled()):
                weights = inputs.returned(returned)
                weights = inputs.weights(slice(None))[0] if weights is None else weights
            if touching:
                output, weights = _touched(inputs, touching, output, weights)
                if isinstance(returned, Tensor) and returned.shape == weights.shape:
                    returned = weights
            rows = _known(weights, inputs.allowed)
        elif function is not eager and (weights := inputs.returned(returned)) is not None:
            rows = _known(weights, inputs.allowed)
        else:
            inputs.forget_mask()
        for recording, name in asked:
            with torch.no_grad():
                crossing = id(module) in recording.crossing
                recording.session.keep(name, inputs.call(rows, crossing, recording.session.tracker))
        inputs.forget_values()
    return output, returned


def _doubt(asked: "Sequence[tuple[_Recording, str]]", function: Any, share: float) -> None:
    """Tell those who asked for a call that its weights times its values are not what the function returned."""
    called = getattr(function, "__name__", type(function).__name__)
    cause = (
        f"{called} computes something else than the model's eager function, by {share:.1%} of the largest output"
    )
    for recording, name in asked:
        recording.session.warn_mismatch(name, cause)


def _touched(
    inputs: Inputs, recordings: "Sequence[_Recording]", output: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output (B, Tq, H, D) and the weights after all changes, in the order in which they were asked
    for. Rows that nobody changed keep the output of the model's own function."""
    before = weights
    for recording in recordings:
        session = recording.session
        first = inputs.first_key(id(inputs.module) in recording.crossing, session.tracker)
        weights = session.changed(weights, inputs.allowed, first)
    changed = inputs.context(weights).to(output.dtype)
    return replace_rows(output, changed, (weights != before).any(-1).transpose(1, 2)), weights


def _known(weights: Tensor, allowed: Tensor | None) -> RowFunction:
    return lambda chosen: (weights[:, :, chosen], allowed if allowed is None else select_rows(allowed, chosen))
