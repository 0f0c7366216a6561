"""Capture transformers models through their attention interface.

While such a model is recorded, each look-up of its attention function returns a wrapper. The wrapper calls the function
that the model would have called and returns its result. The wrapper takes the weights from that result, or computes the
weights with the model's own `eager_attention_forward`. Logit caps, attention sinks, biases and grouped heads are then
correct without extra code. Configs are not changed, because layers and masks depend on them.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.activations.capture_session import (
    HALF,
    AttentionCall,
    AttentionInputs,
    CaptureSession,
    RowFunction,
    mask_from_bias,
    relative_difference,
    replace_rows,
    row_function,
    select_rows,
    self_attention_kind,
    zero_masked_rows,
)
from regard.activations.forward_tracker import (
    ForwardTracker,
    LibraryPatches,
    Patch,
    ThreadList,
    capturing_elsewhere,
    remove_hooks,
)
from regard.activations.modules import TRANSFORMERS, parameter_names
from regard.attention.records import Kind
from regard.errors import InputError
from regard.libraries import is_memory

EAGER = "eager_attention_forward"
"""Name of the eager attention function in a file of transformers, or the end of this name."""
KERNELS = {"sdpa_attention_forward": "sdpa", "flash_attention_forward": "flash", "flex_attention_forward": "flex"}
"""Fused attention functions of transformers."""
CAUSAL_ROWS = 128
"""Number of rows for which the weights of a causal layer are computed at once."""
MASK_ROWS = 512
"""Number of mask rows that are examined at once: the whole mask of a long input may not fit in memory."""
Output = tuple[Tensor, Any]


@cache
def find_interface_caller(cls: type) -> Any:
    """Return the method of a layer class that looks up its attention function; None if no method does."""
    for base in cls.__mro__:
        for function in vars(base).values():
            if inspect.isfunction(function) and base.__module__ != TRANSFORMERS:
                function = inspect.unwrap(function)
                if "ALL_ATTENTION_FUNCTIONS" in function.__code__.co_names and eager_name(function):
                    return function
    return None


def eager_name(function: Any) -> str:
    """Return the name under which a function refers to its eager attention; "" if there is no such name."""
    return next((name for name in function.__code__.co_names if name.endswith(EAGER)), "")


def find_eager_function(cls: type) -> Any:
    """Return the eager attention function of a layer class; None if the class uses no interface."""
    function = find_interface_caller(cls)
    return None if function is None else function.__globals__.get(eager_name(function))


@cache
def names_in_code(cls: Any) -> set[str]:
    functions = (inspect.unwrap(value) for value in vars(cls).values() if inspect.isfunction(value))
    return {name for function in functions for name in function.__code__.co_names}


@cache
def inherited_names(cls: Any) -> set[str]:
    bases = (base for base in cls.__mro__ if not base.__module__.startswith("torch."))
    return {name for base in bases for name in names_in_code(base)}


@dataclass(eq=False)
class InterfaceCall:
    """The inputs of one attention call. `function`: what the model calls; `eager` can compute the weights.

    query (B, H, Tq, D); key and value (B, G, Tk, D), where H is a multiple of G.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    options: Any
    function: Any
    eager: Any
    output: Tensor | None = None
    """(B, Tq, H, D), the result of the function, stored for the comparison with recorded weights."""
    on_mismatch: Callable[[float], None] = lambda share: None
    """Callback that receives the largest difference, relative to the largest output."""
    only_causal: bool = False
    """Whether the mask only hides the future. If so, the causal mask is built row by row, and `mask` is None."""
    mask_is_assumed: bool = False
    """Whether the causal mask is an assumption: a custom function may or may not hide the future itself."""

    def __post_init__(self) -> None:
        self.mask: Tensor | None = _dense_mask(self.mask, self.query, self.key)
        if self.function is not self.eager:
            self._hide_future()

    def _hide_future(self) -> None:
        """Build the causal mask, which a fused function does not receive because it hides the future itself."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        kernel = KERNELS.get(getattr(self.function, "__name__", ""))
        causal = self.options.get("is_causal")
        causal = getattr(self.module, "is_causal", True) if causal is None else causal
        padding_only = kernel == "flash" and self.mask is not None and self.mask.shape[2] == 1
        if kernel == "flex" or not causal or queries < 2 or not (self.mask is None or padding_only):
            return
        self.mask_is_assumed = kernel is None
        window = self.options.get("sliding_window") if kernel == "flash" else None
        if self.mask is None and queries == keys and window is None and not _has_bias(self.options):
            self.only_causal = True
            return
        # With fewer queries than keys, SDPA aligns the mask to the first key and the other kernels to the last.
        diagonal = 0 if kernel == "sdpa" else keys - queries
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=self.query.device).tril(diagonal)
        allowed = allowed if window is None else allowed.triu(diagonal - window + 1)
        self.mask = allowed[None, None] if self.mask is None else self.mask & allowed

    # A fused function may differ from the eager function (a custom function, or a mask built inside); without a
    # check the recorded weights could be silently incorrect. The eager function returns the context anyway, so
    # the comparison costs only two reductions.
    def compare(self, output: Tensor, on_mismatch: Callable[[float], None]) -> None:
        """Compare weights times values with the function's output each time that weights are computed."""
        batch, heads, queries, _ = self.query.shape
        shape = (batch, queries, heads, self.value.shape[-1])
        if self.module.training and self.options.get("dropout"):
            return  # each computation draws its own dropout
        if output.numel() != math.prod(shape):
            on_mismatch(math.inf)
            return
        self.output, self.on_mismatch = output.detach().reshape(shape), on_mismatch
        if self.mask_is_assumed and self._difference(*self._attend([0])[::2], [0]) is not None:
            self.mask, self.only_causal = None, False

    def _difference(self, context: Tensor, mask: Tensor | None, rows: Sequence[int] | slice) -> float | None:
        """Return `relative_difference` of the context (B, Tq, H, D) of some queries to the output, if there is one."""
        if self.output is None:
            return None
        attends = None if mask is None else mask.any(-1).transpose(1, 2)[..., None]
        return relative_difference(context, self.output[:, rows], attends)

    @property
    def allowed(self) -> Tensor | None:
        """Mask, True = may attend. The mask is not stored, because it is as large as all weights of a head."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        if self.mask is not None:
            return mask_from_bias(self.mask)[..., :keys]
        if self.only_causal:
            return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=self.query.device).tril()
        return None

    def forget_values(self) -> None:
        """Release the values: weights do not need values, which take much memory for a long input."""
        self.value, self.output = self.value[..., :0].clone(), None
        self.on_mismatch = lambda share: None  # without outputs nothing is compared; this drops the session

    def returned(self, weights: Any) -> Tensor | None:
        """Return the weights (B, H, Tq, Tk) of the function; None if they are missing or contradict its output."""
        batch, heads, queries, _ = self.query.shape
        shape = (batch, heads, queries, self.key.shape[2])
        if not isinstance(weights, Tensor) or weights.shape != shape:
            return None
        if self.function is self.eager:
            return None if weights.dtype in HALF else zero_masked_rows(weights, self.allowed)
        if self._difference(self.context(weights), self.allowed, slice(None)) is not None:
            return None
        return zero_masked_rows(_float32_cast(weights)(weights), self.allowed)

    def weights(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries and their mask; rows that may attend to no key are zero.

        The softmax is computed in float32 or better.
        """
        blocks = range(0, self.query.shape[2], CAUSAL_ROWS)
        if self.only_causal and rows == slice(None) and len(blocks) > 1 and not torch.is_grad_enabled():
            # A query needs only earlier keys. This halves the work, and no second tensor has the size of the weights.
            whole = _float32_cast(self.query)(self.query).new_zeros(*self.query.shape[:3], self.key.shape[2])
            for first in blocks:
                block = slice(first, first + CAUSAL_ROWS)
                part = self._checked(block)[0]
                whole[:, :, block, : part.shape[-1]] = part
            return whole, self.allowed
        weights, mask = self._checked(rows)
        later = self.key.shape[2] - weights.shape[-1]
        return (F.pad(weights, (0, later)), F.pad(mask, (0, later))) if later and mask is not None else (weights, mask)

    def _checked(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries up to the last key that they may attend to, and their mask."""
        context, weights, mask = self._attend(rows)
        difference = self._difference(context, mask, rows)
        # The eager and the fused function treat infinite values differently; the map names a layer with such weights.
        overflows = difference is not None and math.isnan(difference) and not weights.isfinite().all()
        if difference is not None and not overflows:
            self.on_mismatch(difference)
        return zero_masked_rows(weights, mask), mask

    def _attend(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the context (B, Tq, H, D), the weights and the mask of some queries."""
        queries, cast, keys = self.query.shape[2], _float32_cast(self.query), self.key.shape[2]
        mask, used_keys, allowed = self.mask, keys, None
        if mask is not None:
            mask = select_rows(mask if mask.dtype == torch.bool else cast(mask), rows)
            allowed = mask_from_bias(mask)[..., :keys]
        elif self.only_causal:
            # Use only the keys that the requested rows may attend to, without a matrix over all queries.
            steps = torch.arange(queries, device=self.query.device)[rows]
            used_keys = int(steps.max()) + 1 if len(steps) else 1
            mask = allowed = (torch.arange(used_keys, device=steps.device) <= steps[:, None])[None, None]

        def select(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return cast(select_rows(value, rows) if value.dim() == 4 and value.shape[2] == queries else value)

        query = cast(self.query[:, :, rows])
        key, value = cast(self.key[:, :, :used_keys]), cast(self.value[:, :, :used_keys])
        options = {name: select(value) for name, value in self.options.items()} | {"dropout": 0.0}
        try:
            context, weights = self.eager(self.module, query, key, value, _additive(mask, query), **options)
        except Exception as error:
            # The eager function of some models accepts fewer inputs than the fused function that the model
            # called: no grouped keys, or no call without a mask. This result, too, is compared with the output
            # of the fused function.
            if self.function is self.eager or is_memory(error):
                raise
            scaling = self.options.get("scaling")
            context, weights = _scaled_dot_product(query, key, value, _additive(mask, query), scaling)
        if weights is None:
            raise InputError(f"{type(self.module).__name__} returns no weights: exclude the layer with layers=")
        return context, weights, allowed

    def describe(self, rows: RowFunction, is_cross: bool, tracker: ForwardTracker) -> AttentionCall:
        """Return the call for a session; `is_cross`: whether the layer attends to another sequence."""
        first = self.first_key(is_cross, tracker)
        return AttentionCall(
            queries=self.query.shape[2], rows=rows, kind=self._kind(is_cross, rows), first_key=first, inputs=self.inputs
        )

    def inputs(self) -> AttentionInputs:
        scaling, cap = self.options.get("scaling"), self.options.get("softcap")
        tensors = (value for value in (self.mask, *self.options.values()) if isinstance(value, Tensor))
        biases = [value for value in tensors if value.dim() == 4 and value.is_floating_point()]
        scale = self.query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        return AttentionInputs(self.query, self.key, self.value, scale, tuple(biases), cap)

    def first_key(self, is_cross: bool, tracker: ForwardTracker) -> int:
        """Return the step of the first key: a sliding-window cache drops earlier steps."""
        if is_cross or not _has_sliding_cache(self.module, tracker.cache):
            return 0
        return max(tracker.start + self.query.shape[2] - self.key.shape[2], 0)

    def context(self, weights: Tensor) -> Tensor:
        """Return the context (B, Tq, H, D) for changed weights (B, H, Tq, Tk), in the layout of the eager function."""
        groups = weights.shape[1] // self.value.shape[1]
        value = self.value.repeat_interleave(groups, dim=1) if groups > 1 else self.value
        return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous()

    def _kind(self, is_cross: bool, rows: RowFunction) -> Kind:
        if is_cross:
            return "cross"
        allowed, queries = self.allowed, self.query.shape[2]
        if any(getattr(self.module, flag, False) for flag in ("is_causal", "is_decoder")):
            # An encoder and a decoder may share the module: then only the weights show which of them runs. In a
            # decoder with a prefix some queries attend to later keys.
            if queries < 2 or self.only_causal:
                return "decoder"
            if allowed is None:
                return "encoder" if rows([0])[0][..., 1:].any() else "decoder"
            # The mask hides a key from a query and shows it to the next query.
            hides_future = (allowed[..., 1:, :] & ~allowed[..., :-1, :]).any()
            return "decoder" if hides_future else "encoder"
        return self_attention_kind(allowed, queries)


def _scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Return context (B, Tq, H, D) and weights (B, H, Tq, Tk) (Vaswani et al. 2017, equation 1)."""
    key, value = (tensor.repeat_interleave(query.shape[1] // tensor.shape[1], dim=1) for tensor in (key, value))
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


def _has_bias(options: Any) -> bool:
    return any(isinstance(value, Tensor) and value.dim() == 4 for value in options.values())


def _has_sliding_cache(module: nn.Module, cache: Any) -> bool:
    """Return whether the cache of a layer drops steps before its window."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    index = getattr(module, "layer_idx", None)
    layer = layers[index] if isinstance(index, int) and 0 <= index < len(layers) else None
    if hasattr(layer, "get_seq_length") and getattr(layer, "is_initialized", True):
        return bool(getattr(layer, "is_sliding", False))
    # The layer uses the keys of another layer. If keys are missing, the window of the other layer has moved.
    return bool(layers)


def _float32_cast(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that casts floating-point tensors to float32 if `query` has half precision."""
    is_half = query.dtype in HALF
    return lambda values: values.float() if is_half and values.is_floating_point() else values


def _additive(mask: Tensor | None, query: Tensor) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)


def _is_causal_only(mask: Tensor) -> bool:
    """Return whether a mask hides only the future."""
    if mask.shape[1] > 1 or mask.shape[-2] != mask.shape[-1] or mask.shape[-1] < 2:
        return False
    steps = torch.arange(mask.shape[-1], device=mask.device)
    for rows in steps.split(MASK_ROWS):
        part, past = mask[..., rows, :], steps <= rows[:, None]
        is_causal = (mask_from_bias(part) == past).all()
        if not is_causal or not (part.dtype == torch.bool or ((part == 0) == past).all()):
            return False
    return True


def _dense_mask(mask: Any, query: Tensor, key: Tensor) -> Tensor | None:
    """Return a mask that broadcasts to (B, H, Tq, Tk), from a mask of keys (B, Tk) or a FlexAttention block mask."""
    if isinstance(mask, Tensor):
        return mask[:, None, None, :].bool() if mask.dim() == 2 else mask
    if not hasattr(mask, "mask_mod"):
        return None
    from torch.nn.attention.flex_attention import create_mask

    batch, heads = mask.shape[:2]
    queries, keys, device = query.shape[2], key.shape[2], str(query.device)
    return create_mask(mask.mask_mod, batch, heads, queries, keys, device=device)


MEMORY_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""Names of arguments through which layers receive another sequence to attend to."""


def uses_interface(module: nn.Module) -> bool:
    return find_eager_function(type(module)) is not None


class _Layers:
    """Captures the layers of a model that use the attention interface."""

    def __init__(self, session: CaptureSession) -> None:
        self.session = session
        self.modules = session.tracker.of_classes(uses_interface)
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
    return bool(session.tracker.of_classes(uses_interface))


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    layers = _Layers(session)
    hooks = [session.tracker.hook_before(module, layers.note_memory) for module in layers.modules]
    with _recorded.include(layers), remove_hooks(hooks), _patches.apply(_lookups(set(map(type, layers.modules)))):
        yield {name for module in layers.modules for name in session.tracker.names[id(module)]}


def _lookups(classes: set[type]) -> Iterator[Patch]:
    """Yield the functions with which layers look up their attention function, and the wrappers of these functions."""
    from transformers import AttentionInterface

    def wrap_get_interface(original: Any) -> Any:
        return lambda self, name, default: _wrap(original(self, name, default), default)

    def wrap_getitem(original: Any) -> Any:
        return lambda self, name: _wrap(original(self, name), None)

    yield AttentionInterface, "get_interface", wrap_get_interface
    yield AttentionInterface, "__getitem__", wrap_getitem
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
            query, key, value = (session.receive(kind, part) for kind, part in (("q", query), ("k", key), ("v", value)))
        output, returned = function(module, query, key, value, attention_mask, **options)
        requests = [
            (layers, name) for layers, name in requests if layers.session.intervenes or not layers.session.receives
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
        elif call.mask is not None and not _has_bias(options) and _is_causal_only(call.mask):
            call.mask, call.only_causal = None, True  # the mask is as large as all weights of a head
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
        layer = call_name.split("#")[0]
        layers.session.warn_once(layer, f"weights of {layer!r} differ from the weights that the model used: {cause}")


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
