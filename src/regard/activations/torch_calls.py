"""Intercept the calls of PyTorch's attention functions and softmaxes in all modules.

A `TorchFunctionMode` also intercepts functions that a module imported by name, which replacing `F.softmax`
would miss.

- Calls of SDPA and of `nn.MultiheadAttention`'s function are recorded under the name of the calling module (see
  `torch_attention`).
- The softmax of a layer that computes attention in its own code is recorded and changed in the same way if its
  scores are products of states, or if it weighs values (see `attention_axes`). Softmaxes of routers and output
  distributions weigh none.
- Without gradients, PyTorch's encoder layers take a fast path: a single call that returns no weights. A
  recorded or intervened pass takes the slow path instead. The two paths agree within rounding, with two
  exceptions that `match_fast_path` corrects: `nn.TransformerEncoder` drops padded steps and returns zeros for
  them, and a row that may attend to no key is NaN.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import handle_torch_function, has_torch_function

from regard.activations.attention_axes import (
    BY_HEAD,
    FOLDED,
    PRODUCT,
    SELECTED,
    SITES,
    SOFTMAXES,
    UNKNOWN,
    Axes,
    ProbeMode,
    active_probe,
    find_heads,
    in_place_of,
    origin_of,
)
from regard.activations.capture_session import (
    HALF,
    AttentionCall,
    CaptureSession,
    InterventionSession,
    OneHead,
    nonzero_keys,
)
from regard.activations.forward_tracker import ForwardTracker, and_parents, capturing_elsewhere
from regard.activations.hooks import ThreadList
from regard.activations.interface_call import find_eager_function
from regard.activations.torch_attention import (
    CAPTURED,
    combine_masks,
    describe_weights,
    mask_from_bias,
    record_multi_head,
    record_sdpa,
    shape_of_sdpa,
)
from regard.attention.records import is_transformed
from regard.errors import InputError, is_own, plural

Target = CaptureSession | OneHead
"""What records or changes a call."""
WINDOW_ATTRIBUTE = "one_sided_attn_window_size"
"""Attribute of Longformer's layers (see `output_attentions`)."""
WINDOWS = Axes(("s", "q", "h", "k"))
"""The axes of their weights."""


def applies(session: CaptureSession) -> bool:
    """Return whether the model may call PyTorch's attention functions, judged by the code of its classes.

    Intercepting every PyTorch call costs time. Regard's own models do not need interception, nor do transformers
    models whose source contains none of the function names and uses none of PyTorch's layers. Interventions
    always need interception, because they change the softmax of layers that compute attention in their own code.
    """
    return session.intervenes or any(map(_may_call, set(map(type, session.tracker.modules.values()))))


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture PyTorch's attention functions inside the block, and change the softmaxes of the user's layers."""
    mode = TorchCallMode(session)
    with ExitStack() as stack:
        stack.enter_context(match_fast_path(session.tracker))
        stack.enter_context(session.axes.observe())
        stack.enter_context(mode)
        yield set()


@cache
def _may_call(cls: Any) -> bool:
    if cls.__module__.startswith("torch.nn.modules.") and cls is not nn.MultiheadAttention:
        return "transformer" in cls.__module__
    if is_own(cls.__module__):
        return False
    if not cls.__module__.startswith("transformers."):
        return True
    source = inspect.getsource(sys.modules[cls.__module__])
    names = [*(function.__name__ for function in CAPTURED), "nn.MultiheadAttention"]
    own_softmax = "att" in cls.__name__.lower() and "softmax" in inspect.getsource(cls)
    return any(name in source for name in names) or (own_softmax and find_eager_function(cls) is None)


class TorchCallMode(ProbeMode):
    """Intercepts every PyTorch call inside the block.

    If several modes are active, the first mode that intercepts a call handles the call for all modes.
    """

    def __init__(self, session: CaptureSession) -> None:
        super().__init__(session.tracker)
        self.session = session
        self.changed: dict[int, Tensor] = {}
        """The most recently changed weights, by id of the layer that computes its own softmax."""
        self.names: dict[str, str | None] = {}
        """By layer: the name of its last call."""
        self.head_calls: dict[str, list[AttentionCall]] = {}
        """By layer that computes one head in each call: the calls so far."""

    def __enter__(self) -> "TorchCallMode":
        _modes.active.append(self)
        mode: Any = super()
        mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        mode: Any = super()
        mode.__exit__(*exception)
        _modes.active.remove(self)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if active_probe() is not None:
            return function(*args, **kwargs)
        if function not in CAPTURED and function not in SOFTMAXES:
            return super().__torch_function__(function, types, args, kwargs)
        modes = [mode for mode in _modes.active if mode.captures]
        if function in SITES:
            for mode in modes:
                mode.session.axes.count()
        with capturing_elsewhere(mode.tracker for mode in modes):
            if function in SOFTMAXES:
                weights = function(*args, **kwargs)
                dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
                if not modes or not isinstance(dim, int) or weights.dim() < 2 or not weights.numel():
                    return weights
                scores = args[0] if args else kwargs["input"]
                attended = _attend(modes, weights, dim % weights.dim(), product=origin_of(scores) == PRODUCT)
                return in_place_of(kwargs.get("out"), attended)
            callers = [(mode, mode.tracker.running[-1]) for mode in modes]
            for mode, caller in callers:
                mode.session.kernel_callers.add(caller)
            callers = [(mode, caller) for mode, caller in callers if mode.session.concerns(caller)]
            if not callers:
                return function(*args, **kwargs)
            shape = shape_of_sdpa(*args, **kwargs) if function is F.scaled_dot_product_attention else ()
            axes: Axes | str | None = BY_HEAD
            # Layers from transformers keep to the convention, and a probe could change their caches.
            layer_class = type(callers[0][0].tracker.module(callers[0][1]))
            if len(shape) > 2 and not (len(shape) == 4 and layer_class.__module__.startswith("transformers.")):
                query = args[0] if args else kwargs["query"]
                axes = callers[0][0].session.axes.find(shape, len(shape) - 1, convention=query)
            targets, known = _targets(callers, axes or UNKNOWN, shape, len(shape) - 1)
            if not targets:
                return function(*args, **kwargs)
            if function is F.multi_head_attention_forward:
                return record_multi_head(targets, *args, **kwargs)
            return record_sdpa(targets, known if len(shape) > 2 else None, *args, **kwargs)

    def softmax_layer(self) -> str | None:
        """Return the layer whose softmax is computed; None if the session does not need it."""
        session, running = self.session, self.tracker.running
        if isinstance(session, InterventionSession):
            # The softmax may be a module inside the layer: check the two innermost running modules.
            layers = (layer for layer in running[:-3:-1] if layer not in session.named_modules)
            return next(filter(session.concerns, layers), None)
        modules = self.tracker.named
        kinds = ((name, type(modules.get(name)).__module__) for name in reversed(running))
        # A softmax or a dropout of PyTorch is part of the layer around it.
        layer = next((name for name, kind in kinds if not kind.startswith("torch.nn.modules.")), None)
        # With modules=, the user chooses among the layers of a class; layers of other classes are still recorded.
        chosen = {type(modules[parent]) for name in session.named_modules for parent in and_parents(name)}
        return None if layer is None or type(modules.get(layer)) in chosen else layer


_modes = ThreadList[TorchCallMode]()
"""The modes that are active in this thread."""


def last_changed_weights(layer: nn.Module) -> Tensor | None:
    """Return the changed weights of a layer that computes its own softmax; None without an intervention."""
    changed = [mode.changed[id(layer)] for mode in _modes.active if id(layer) in mode.changed]
    return changed[-1] if changed else None


def _attend(modes: Sequence[TorchCallMode], weights: Tensor, keys: int, *, product: bool) -> Tensor:
    """Change and record the result of a softmax over the axis `keys`."""
    layers = [(mode, mode.softmax_layer()) for mode in modes]
    callers = [(mode, layer) for mode, layer in layers if layer is not None and mode.session.concerns(layer)]
    if not callers:
        return weights
    mode, layer = callers[0]
    module, finder = mode.tracker.module(layer), mode.session.axes
    in_library = type(module).__module__.startswith("transformers.")
    last = keys == weights.dim() - 1
    if in_library and not product and not (last and "att" in type(module).__name__.lower()):
        return weights  # a router, a gate or a kernel of a convolution
    if hasattr(module, WINDOW_ATTRIBUTE) and weights.dim() == 4:
        axes: Axes | str | None = WINDOWS
        sessions = [mode.session for mode, _ in callers]
        if any(
            isinstance(session, InterventionSession) and session.change.query is not None for session in sessions
        ):
            raise InputError(
                f"{layer} attends in windows, where no single weight can be set: change whole heads instead"
            )
    else:
        convention = weights if product and is_transformed(weights) else None  # vmap allows no probe
        axes = finder.find(weights.shape, keys, product=product, convention=convention)
    if axes is None:
        return weights
    heads = finder.find_heads() or len(weights) + 1
    # In layers from transformers, the heads of a sample are adjacent.
    if in_library and axes in (UNKNOWN, FOLDED) and weights.dim() == 3 and len(weights) % heads == 0:
        known_rows = finder.has_steps(weights.shape[1], len(weights) // heads)
        axes = Axes(("sh", "q", "k"), heads) if known_rows else SELECTED
    if isinstance(axes, str) and not product:  # without scores of queries and keys, it may be no attention
        callers = [(mode, name) for mode, name in callers if not mode.session.intervenes]
    targets, known = _targets(callers, axes, weights.shape, keys)
    by_head = known.unfold(weights)
    for target, _ in targets:
        if target.intervenes:
            by_head = target.change_weights(by_head, nonzero_keys(by_head))
            weights = known.fold(by_head, weights.shape)
            mode.changed[id(module)] = weights.detach()
    for target, name in targets:
        if not target.intervenes:
            # A copy, because the model may change the weights in place.
            copied = by_head.detach().float() if by_head.dtype in HALF else by_head.detach().clone()
            call = describe_weights(copied, flat=weights.dim() == 2 and "q" in known.roles)
            if isinstance(target, CaptureSession) and target.unconfirmed is not None:
                target.unconfirmed.setdefault(name, []).append(call)
            else:
                target.record_call(name, call)
    return weights


def _targets(
    callers: Sequence[tuple[TorchCallMode, str]], axes: Axes | str, shape: Sequence[int], keys: int
) -> tuple[list[tuple[Target, str]], Axes]:
    """Return the sessions that record or change a call, with the name of the call, and its axes.

    Raises `InputError` if the axes are unknown and an intervention needs them.
    """
    targets: list[tuple[Target, str]] = []
    for mode, layer in callers:
        session = mode.session
        if isinstance(axes, str):
            reason = axes.format(tuple(shape))
            if not isinstance(session, InterventionSession):
                session.refusals[layer] = f"{type(mode.tracker.module(layer)).__name__}: {reason}"
                continue
            if session.change.heads is not None or session.change.query is not None:
                raise InputError(
                    f"{layer}: {reason}: name a module where they are (B, H, Tq, Tk) with modules=, or leave out "
                    "heads, query and key"
                )
        elif shape:
            module = mode.tracker.module(layer)
            count = axes.heads * math.prod(shape[axis] for axis, role in enumerate(axes.roles) if role == "h")
            if find_heads(module) not in (None, count) and not type(module).__module__.startswith(
                "transformers."
            ):
                what = f"computes {plural(count, 'map')} in each call, and has {find_heads(module)} heads"
                session.warn_once(layer, f"{layer or 'the model'} {what}: heads= counts the maps")
        one_head = axes if isinstance(axes, Axes) and axes.head is not None else None
        if one_head is not None and session.receives:
            continue  # the activations of one head in each call have no tensor of all heads
        if one_head is None or one_head.head == 0:
            mode.names[layer] = layer if session.unconfirmed is not None else session.next_call_name(layer)
        name = mode.names[layer]
        if name is not None:
            calls = mode.head_calls.setdefault(layer, [])
            targets.append((OneHead(session, one_head, calls) if one_head else session, name))
    if isinstance(axes, Axes):
        return targets, axes
    others = [axis for axis in range(len(shape)) if axis != keys]
    return targets, Axes(
        tuple("k" if axis == keys else "q" if axis == others[-1] else "s" for axis in range(len(shape)))
    )


FAST_PATH_LAYERS = {
    nn.MultiheadAttention.forward: ("query", "key", "key_padding_mask", "attn_mask"),
    nn.TransformerEncoderLayer.forward: ("src", "src", "src_key_padding_mask", "src_mask"),
}
"""By the `forward` of a layer: the names of its queries, its keys and its masks."""


@contextmanager
def match_fast_path(tracker: ForwardTracker) -> Iterator[None]:
    """Make PyTorch's layers return the same results on the slow path as on their fast path."""
    functions = {*FAST_PATH_LAYERS, nn.TransformerEncoder.forward}
    if not any(_forward_function(module) in functions for module in tracker.modules.values()):
        yield
        return
    hook = register_module_forward_hook(_FastPathOutput(tracker).replace, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        # PyTorch 2.13 does not remove this entry, and would later act as if global hooks were registered.
        getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {}).pop(hook.id, None)


def _forward_function(module: nn.Module) -> Any:
    """Return the `forward` of a module's class; None for compiled code."""
    return inspect.getattr_static(type(module), "forward", None)


class _FastPathOutput:
    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker, self.busy = tracker, False

    def replace(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return the output of the module's fast path; None if it is the same."""
        function = _forward_function(module)
        if self.busy or module.training or not self.tracker.active or id(module) not in self.tracker.names:
            return None
        if function is not nn.TransformerEncoder.forward and function not in FAST_PATH_LAYERS:
            return None
        inputs = inspect.signature(function).bind(module, *args, **kwargs).arguments
        self.busy = True
        try:
            with capturing_elsewhere([self.tracker]):
                if function is nn.TransformerEncoder.forward:
                    return without_modes(lambda: _zero_padded_steps(module, inputs, output))
                return without_modes(lambda: _restore_masked_rows(module, args, kwargs, inputs, output))
        finally:
            self.busy = False


def without_modes(function: Callable[[], Any]) -> Any:
    """Call a function without a `TorchFunctionMode`: PyTorch's layers take their fast path only without a mode.

    `handle_torch_function` removes the innermost mode while that mode calls this function again.
    """
    if has_torch_function((None,)):
        return handle_torch_function(without_modes, (), function)
    return function()


def _zero_padded_steps(encoder: Any, inputs: dict[str, Any], output: Tensor) -> Tensor | None:
    """Return the output (B, T, D) of an encoder with zeros in the steps that its fast path drops.

    A copy of the encoder without layers finds the dropped steps: the copy returns its input with zeros in these
    steps.
    """
    if inputs.get("src_key_padding_mask") is None:
        return None
    ones = torch.ones_like(inputs["src"]).requires_grad_(inputs["src"].requires_grad)
    probe = object.__new__(nn.TransformerEncoder)
    parts = {name: None for name in encoder._modules if name == "norm"}
    probe.__dict__ = vars(encoder) | {"_modules": parts, "layers": _NoLayers(encoder.layers)}
    dropped = nn.TransformerEncoder.forward(**inputs | {"self": probe, "src": ones}) == 0
    if not bool(dropped.any()):
        return None
    padded = torch.zeros_like(output) if encoder.norm is None else encoder.norm(torch.zeros_like(output))
    return torch.where(dropped, padded, output)


class _NoLayers(list[nn.Module]):
    """A list of encoder layers whose first layer can be inspected, but which runs no layer."""

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(())


def _restore_masked_rows(module: Any, args: Any, kwargs: Any, inputs: dict[str, Any], output: Any) -> Any:
    """Return the output (B, T, D) of a layer, with the values that fully masked rows have without recording."""
    # Run the layer again only if a row is fully masked.
    queries, keys, padding, mask = (inputs.get(name) for name in FAST_PATH_LAYERS[_forward_function(module)])
    attention = getattr(module, "self_attn", module)
    if queries is None or keys is None or queries.dim() != 3 or not attention.batch_first:
        return None
    shape = (len(queries), attention.num_heads, queries.shape[1], keys.shape[1])
    combined = combine_masks(padding, mask, shape)
    if combined is None:
        return None
    attends = mask_from_bias(combined).any(-1).all(1)
    if bool(attends.all()):
        return None
    plain, rows = module.forward(*args, **kwargs), attends.expand(len(queries), queries.shape[1])[..., None]
    if isinstance(output, tuple):
        return torch.where(rows, output[0], plain[0]), *output[1:]
    return torch.where(rows, output, plain)
