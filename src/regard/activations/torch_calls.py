"""Intercept the calls of PyTorch's attention functions and softmaxes in all modules.

A `TorchFunctionMode` also intercepts functions that a module imported by name, which replacing `F.softmax` would miss.

- Calls of `F.scaled_dot_product_attention` and of `F.multi_head_attention_forward`, which `nn.MultiheadAttention`
  calls, run unchanged and are recorded under the name of the calling module. If a call returns no weights, these
  are computed in addition.
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
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
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
    MASKED,
    AttentionCall,
    AttentionInputs,
    CaptureSession,
    InterventionSession,
    OneHead,
    attention_call,
    mask_from_bias,
    nonzero_keys,
    relative_difference,
    replace_rows,
    select_rows,
    self_attention_kind,
    zero_masked_rows,
)
from regard.activations.forward_tracker import ForwardTracker, ThreadList, and_parents, capturing_elsewhere
from regard.activations.transformers_attention import find_eager_function, inherited_names
from regard.attention.functional import widen
from regard.attention.names import find_name
from regard.attention.records import Kind, is_transformed
from regard.errors import InputError, is_own, plural

FORBIDDEN = torch.finfo(torch.float32).min / 4
"""The float32 bias that masks a score; the sum of two such biases remains finite."""
FORWARD = inspect.signature(F.multi_head_attention_forward)
POSITIONAL = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Positional parameters of `F.scaled_dot_product_attention`."""

Target = CaptureSession | OneHead
"""What records or changes a call."""
Requests = Sequence[tuple[Target, str]]
"""The sessions that record a call, and the name of the call in each session."""


class SDPACall:
    """The inputs of one call of `F.scaled_dot_product_attention`, reshaped to (B, H, T, D)."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        axes: Axes | None = None,
    ) -> None:
        self.axes = axes
        if enable_gqa and (groups := query.shape[-3] // key.shape[-3]) > 1:
            key, value = (tensor.repeat_interleave(groups, dim=-3) for tensor in (key, value))
        self.dropout, mask = dropout_p, attn_mask
        self.lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        self.queries, self.scale = query.shape[-2], query.shape[-1] ** -0.5 if scale is None else scale
        self.query, self.key, self.value = (self.by_head(tensor) for tensor in (query, key, value))
        self.causal = is_causal
        self.mask = None
        if mask is not None:
            self.mask = self.by_head(mask.expand(*mask.shape[:-2], self.queries, self.key.shape[2]))

    def context(self, weights: Tensor) -> Tensor:
        """Return the context (..., Tq, Dv) for weights (B, H, Tq, Tk), with the dimensions of the call."""
        return self.as_output(weights.to(self.value.dtype) @ self.value)

    def run(self) -> Tensor:
        """Return the context (..., Tq, Dv) of the kernel, after queries, keys or values were replaced."""
        context = F.scaled_dot_product_attention(
            self.query, self.key, self.value, self.mask, self.dropout, self.causal, scale=self.scale
        )
        return self.as_output(context)

    def as_output(self, context: Tensor) -> Tensor:
        """Return a context (B, H, Tq, Dv) with the dimensions of the call."""
        shape = (*self.lead, self.queries, self.value.shape[-1])
        return context.reshape(shape) if self.axes is None else self.axes.fold(context, shape)

    def by_head(self, states: Tensor) -> Tensor:
        """Return states (..., T, D) as (B, H, T, D)."""
        states = states.expand(*self.lead, *states.shape[-2:])
        if self.axes is not None:
            return self.axes.unfold(states)
        return states.reshape(-1, 1, *states.shape[-2:]) if len(self.lead) != 2 else states

    def receive(self, sessions: Sequence[Target]) -> bool:
        """Let sessions receive queries, keys and values; returns whether one of them was replaced."""
        before = self.query, self.key, self.value
        for session in sessions:
            session.inputs = self.inputs
            self.query, self.key, self.value = (
                session.receive(kind, part) for kind, part in (("q", self.query), ("k", self.key), ("v", self.value))
            )
        return any(new is not old for new, old in zip((self.query, self.key, self.value), before, strict=True))

    def inputs(self) -> AttentionInputs:
        biases = () if self.mask is None or self.mask.dtype == torch.bool else (self.mask,)
        return AttentionInputs(self.query, self.key, self.value, self.scale, biases)

    @property
    def allowed(self) -> Tensor | None:
        """Mask, True = may attend; None without a mask."""
        return None if self.mask is None else mask_from_bias(self.mask)

    @property
    def kind(self) -> Kind | None:
        """The kind of attention; None for a single query, which leaves it open."""
        if self.queries < 2:
            return None
        kind: Kind = "decoder" if self.causal else self_attention_kind(self.allowed, self.queries)
        return kind if kind == "decoder" or self.queries == self.key.shape[2] else "cross"

    def weights(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries, and their mask; a row that may attend to no key is zero."""
        query = self.query[:, :, rows]
        with torch.autocast(query.device.type, enabled=False):
            scores = widen(query) @ widen(self.key).transpose(-2, -1) * self.scale
        mask = None if self.mask is None else select_rows(self.mask, rows)
        if self.causal:
            steps = torch.arange(self.key.shape[2], device=query.device)
            mask = steps <= torch.arange(self.queries, device=query.device)[rows].unsqueeze(-1)
        if mask is None:
            return scores.softmax(-1), None
        # Use a finite number instead of -inf, so that a fully masked row is not NaN in the forward or backward pass.
        allowed, least = mask_from_bias(mask), torch.finfo(scores.dtype).min / 4
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, least)
        else:
            scores = scores + mask.to(scores.dtype).clamp(min=least)
        return zero_masked_rows(scores.softmax(-1), allowed), allowed


def _record(requests: Requests, call: AttentionCall) -> None:
    for session, name in requests:
        session.record_call(name, call)


def _change(requests: Requests, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Apply the interventions of all sessions to weights, in order."""
    for session, _ in requests:
        weights = session.change_weights(weights, mask)
    return weights


def shape_of_sdpa(*args: Any, **kwargs: Any) -> tuple[int, ...]:
    """Return the shape of the weights of a call; () for jagged tensors and for inputs of two dimensions."""
    inputs = dict(zip(POSITIONAL, args, strict=False)) | kwargs
    query, key, value = (inputs[name] for name in POSITIONAL[:3])
    if query.is_nested or key.is_nested or value.is_nested:
        return ()
    grouped = slice(-3, -2) if kwargs.get("enable_gqa") else slice(0)
    leads = (states.shape[: -2 - bool(query.shape[grouped])] + query.shape[grouped] for states in (query, key, value))
    return (*torch.broadcast_shapes(*leads), query.shape[-2], key.shape[-2])


def record_sdpa(requests: Requests, axes: Axes | None, *args: Any, **kwargs: Any) -> Tensor:
    """Run `F.scaled_dot_product_attention` and record its weights; changed rows follow from changed weights."""
    unchanged = partial(F.scaled_dot_product_attention, *args, **kwargs)
    inputs = dict(zip(POSITIONAL, args, strict=False)) | kwargs
    if any(inputs[name].is_nested for name in POSITIONAL[:3]):
        names = ", ".join(repr(name) for _, name in requests)
        warnings.warn(
            f"attention of {names} uses jagged tensors, which cannot be recorded: pad the tensors, and give a mask",
            stacklevel=3,
        )
        return unchanged()
    random_state = torch.get_rng_state() if inputs.get("dropout_p") else None
    call = SDPACall(**inputs, axes=axes)
    receiving = [session for session, _ in requests if session.receives]
    output = call.run() if call.receive(receiving) else unchanged()
    if any(session.intervenes for session, _ in requests):
        weights, mask = call.weights(slice(None))
        changed_weights = _change(requests, weights, mask)
        changed, flat = (changed_weights != weights).any(-1, keepdim=True), (*output.shape[:-1], 1)
        rows = (changed.reshape(flat) if axes is None else axes.fold(changed, flat))[..., 0]
        _record(requests, AttentionCall.from_weights(changed_weights, mask, call.kind))
        output = replace_rows(output, call.context(F.dropout(changed_weights, call.dropout)), rows)
    elif random_state is not None:
        # The kernel drew dropout from this state of the CPU generator. A kernel that draws dropout differently is
        # detected by its output; the weights before dropout are then recorded.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            weights, mask = call.weights(slice(None))
            torch.set_rng_state(random_state)
            dropped = F.dropout(weights, call.dropout)
            if relative_difference(call.context(dropped), output) is None:
                weights = dropped
            _record(requests, AttentionCall.from_weights(weights, mask, call.kind))
    else:
        with torch.no_grad():
            known = AttentionCall(queries=call.queries, rows=call.weights, inputs=call.inputs, kind=call.kind)
            _record(requests, known)
    if receiving:
        contexts = first = call.by_head(output)
        for session in receiving:
            contexts = session.receive("z", contexts)
        output = output if contexts is first else call.as_output(contexts)
    return output


def record_multi_head(requests: Requests, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Run `F.multi_head_attention_forward` with the caller's arguments, and record its weights.

    If the caller requests no weights, the fused kernel runs, and the weights before dropout are computed separately.
    """
    bound = FORWARD.bind(*args, **kwargs)
    bound.apply_defaults()
    inputs = dict(bound.arguments)
    if any(session.receives for session, _ in requests):
        return _receive_multi_head(requests, inputs)
    needs_weights, dropout = inputs["need_weights"], inputs["dropout_p"] if inputs["training"] else 0.0
    output, returned = F.multi_head_attention_forward(**inputs | {"average_attn_weights": False})
    intervenes = any(session.intervenes for session, _ in requests)
    with torch.set_grad_enabled(intervenes and torch.is_grad_enabled()):
        call = _multi_head_call(inputs)
    if returned is None and not intervenes:
        with torch.no_grad():
            kind = _multi_head_kind(inputs, call.allowed, call.queries)
            _record(requests, AttentionCall(queries=call.queries, rows=call.weights, kind=kind))
        return output, None
    if returned is None:
        weights, mask = call.weights(slice(None))
    else:
        mask = call.allowed
        weights = zero_masked_rows(returned if returned.dim() == 4 else returned.unsqueeze(0), mask)
    changed = _change(requests, weights, mask)
    if changed is not weights:
        rows = (changed != weights).any(-1).any(1).T.reshape(output.shape[:-1])
        value = _project(inputs, "value")
        kept = changed if needs_weights else F.dropout(changed, dropout)
        context = _project_output(kept.to(value.dtype) @ value, inputs)
        output = replace_rows(output, context.to(output.dtype), rows)
        returned = None if returned is None else changed.to(returned.dtype).reshape(returned.shape)
    _record(requests, AttentionCall.from_weights(changed, mask, _multi_head_kind(inputs, mask, call.queries)))
    if returned is not None and inputs["average_attn_weights"]:
        return output, returned.mean(-3)
    return output, returned


def _multi_head_kind(inputs: dict[str, Any], mask: Tensor | None, queries: int) -> Kind:
    return self_attention_kind(mask, queries) if inputs["query"] is inputs["key"] else "cross"


def _multi_head_call(inputs: dict[str, Any]) -> SDPACall:
    """Return the projected queries and keys of `F.multi_head_attention_forward`; the values are not projected."""
    query, key = _project(inputs, "query"), _project(inputs, "key")
    padding, forbidden = inputs["key_padding_mask"], inputs["attn_mask"]
    mask = combine_masks(padding, forbidden, (*query.shape[:3], key.shape[2]))
    call = SDPACall(query, key, key)
    call.mask = mask[0, 0] if mask is not None and padding is None and forbidden.dim() == 2 else mask
    return call


def _project(inputs: dict[str, Any], part: str) -> Tensor:
    """Return the query, key or value (B, H, T, d) of a PyTorch layer, with the keys and values that the layer adds."""
    letter, number, heads = part[0], POSITIONAL.index(part), inputs["num_heads"]
    if (static := inputs.get(f"static_{letter}")) is not None:
        projected: Tensor = static.unflatten(0, (-1, heads))
    else:
        separate, bias = inputs["use_separate_proj_weight"], inputs["in_proj_bias"]
        matrix = inputs[f"{letter}_proj_weight"] if separate else inputs["in_proj_weight"].chunk(3)[number]
        states = inputs[part] if inputs[part].dim() == 3 else inputs[part].unsqueeze(1)
        projected = F.linear(states, matrix, None if bias is None else bias.chunk(3)[number])
        if (added := inputs.get(f"bias_{letter}")) is not None:
            projected = torch.cat([projected, added.expand(1, *projected.shape[1:])])
        projected = projected.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    return F.pad(projected, (0, 0, 0, 1)) if inputs["add_zero_attn"] and part != "query" else projected


def combine_masks(padding: Tensor | None, mask: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Return the masks of a PyTorch layer as a single mask for SDPA, which broadcasts to `shape` (B, H, Tq, Tk).

    In the layer's masks, True or a large negative number hides a key. In the result, True allows attention, or a number
    is added to the scores. Keys that the layer itself appends come last, and every query may attend to them.
    """
    masks = []
    if padding is not None:
        masks.append((padding if padding.dim() == 2 else padding.unsqueeze(0))[:, None, None, :])
    if mask is not None:
        masks.append(mask.unflatten(0, shape[:2]) if mask.dim() == 3 else mask[None, None])
    if not masks:
        return None
    if all(part.dtype == torch.bool for part in masks):
        allowed = ~(masks[0] | masks[-1])
        return F.pad(allowed, (0, shape[-1] - allowed.shape[-1]), value=True)
    biases = [
        torch.zeros_like(part, dtype=torch.float32).masked_fill(part, FORBIDDEN)
        if part.dtype == torch.bool
        else part.float().clamp(min=FORBIDDEN)
        for part in masks
    ]
    return F.pad(sum(biases[1:], biases[0]), (0, shape[-1] - biases[0].shape[-1]))


def _receive_multi_head(requests: Requests, inputs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Pass the activations of `F.multi_head_attention_forward`, which computes them without modules.

    The function itself computes the output unless an activation is replaced.
    """
    call = _multi_head_call(inputs)
    call.value = _project(inputs, "value")
    replaced = call.receive([session for session, _ in requests])
    first, mask = call.weights(slice(None))
    weights = _change(requests, first, mask)
    dropout = inputs["dropout_p"] if inputs["training"] else 0.0
    known = AttentionCall.from_weights(weights, mask, _multi_head_kind(inputs, mask, call.queries))
    _record([request for request in requests if not request[0].receives], known)
    context = contexts = F.dropout(weights, dropout).to(call.value.dtype) @ call.value
    for session, _ in requests:
        contexts = session.receive("z", contexts)
    if not replaced and weights is first and contexts is context:
        return F.multi_head_attention_forward(**inputs)
    returned = weights.mean(1) if inputs["average_attn_weights"] else weights
    return _project_output(contexts, inputs), returned if inputs["need_weights"] else None


def _project_output(context: Tensor, inputs: dict[str, Any]) -> Tensor:
    """Return the output (Tq, B, D) of a PyTorch layer for contexts (B, H, Tq, Dv)."""
    output = F.linear(context.permute(2, 0, 1, 3).flatten(2), inputs["out_proj_weight"], inputs["out_proj_bias"])
    return output if inputs["query"].dim() == 3 else output.squeeze(1)


CAPTURED = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
"""Functions that are replaced during a recording."""


WINDOW_ATTRIBUTE = "one_sided_attn_window_size"
"""Attribute of Longformer's layers (see `output_attentions`)."""
WINDOWS = Axes(("s", "q", "h", "k"))
"""The axes of their weights."""


def applies(session: CaptureSession) -> bool:
    """Return whether the model may call PyTorch's attention functions, judged by the code of its classes.

    Intercepting every PyTorch call costs time. Regard's own models do not need interception, nor do transformers
    models whose source contains none of the function names and uses none of PyTorch's layers. Sessions that change
    weights need it for layers that compute the softmax in their own code.
    """
    names = session.changed_layers() if session.intervenes else ()
    if session.intervenes and not (names and all(_is_captured(session.tracker.named, name) for name in names)):
        return True
    return not isinstance(session, InterventionSession) and any(map(_may_call, session.tracker.by_class))


def _is_captured(modules: Mapping[str, nn.Module], layer: str) -> bool:
    """Return whether `transformers_attention` captures a layer; a layer with a second softmax, as in GPT-2, is not."""
    name = find_name(layer.partition("#")[0], modules)
    cls: Any = type(modules.get(name or ""))
    own_softmax = any("softmax" in part.lower() for part in inherited_names(cls))
    return name is not None and find_eager_function(cls) is not None and not own_softmax


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture PyTorch's attention functions inside the block, and change the softmaxes of the user's layers."""
    mode = TorchCallMode(session)
    with match_fast_path(session.tracker), session.axes.observe(), _modes.include(mode), mode:
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
                attended = _attend(modes, scores, weights, dim % weights.dim())
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
            layer_class = type(callers[0][0].tracker.named[callers[0][1]])
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


def _attend(modes: Sequence[TorchCallMode], scores: Tensor, weights: Tensor, keys: int) -> Tensor:
    """Change and record the result of a softmax of scores over the axis `keys`."""
    product = origin_of(scores) == PRODUCT
    layers = [(mode, mode.softmax_layer()) for mode in modes]
    callers = [(mode, layer) for mode, layer in layers if layer is not None and mode.session.concerns(layer)]
    if not callers:
        return weights
    mode, layer = callers[0]
    module, finder = mode.tracker.named[layer], mode.session.axes
    in_library = type(module).__module__.startswith("transformers.")
    last = keys == weights.dim() - 1
    if in_library and not product and not (last and "att" in type(module).__name__.lower()):
        return weights  # a router, a gate or a kernel of a convolution
    if hasattr(module, WINDOW_ATTRIBUTE) and weights.dim() == 4:
        axes: Axes | str | None = WINDOWS
        sessions = [mode.session for mode, _ in callers]
        if any(isinstance(session, InterventionSession) and session.change.query is not None for session in sessions):
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
            target.softmax_input = known.unfold(scores)
            # Weights of keys with far smaller scores are rounded to 0, as those of hidden keys.
            mask = nonzero_keys((by_head != 0) | (target.softmax_input > MASKED))
            by_head = target.change_weights(by_head, mask)
            weights = known.fold(by_head, weights.shape)
            mode.changed[id(module)] = weights.detach()
    for target, name in targets:
        if not target.intervenes:
            # A copy, because the model may change the weights in place.
            copied = by_head.detach().float() if by_head.dtype in HALF else by_head.detach().clone()
            call = attention_call(copied, flat=weights.dim() == 2 and "q" in known.roles)
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
                session.refusals[layer] = f"{type(mode.tracker.named[layer]).__name__}: {reason}"
                continue
            if session.change.heads is not None or session.change.query is not None:
                raise InputError(
                    f"{layer}: {reason}: name a module where they are (B, H, Tq, Tk) with modules=, or leave out "
                    "heads, query and key"
                )
        elif shape:
            module = mode.tracker.named[layer]
            count = axes.heads * math.prod(shape[axis] for axis, role in enumerate(axes.roles) if role == "h")
            if find_heads(module) not in (None, count) and not type(module).__module__.startswith("transformers."):
                what = f"computes {plural(count, 'map')} in each call, and has {find_heads(module)} heads"
                session.warn_once(layer, f"{layer or 'the model'} {what}: heads= counts the maps")
        one_head = axes if isinstance(axes, Axes) and axes.head is not None else None
        if one_head is not None and session.receives:
            continue  # the activations of one head in each call have no tensor of all heads
        if one_head is None or one_head.head == 0:
            waits = session.unconfirmed is not None and layer not in session.kernel_callers
            mode.names[layer] = layer if waits else session.next_call_name(layer)
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
    busy = False

    def replace(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return the output of the module's fast path; None if it is the same."""
        nonlocal busy
        function = _forward_function(module)
        if busy or module.training or not tracker.active or id(module) not in tracker.names:
            return None
        if function not in functions:
            return None
        inputs = inspect.signature(function).bind(module, *args, **kwargs).arguments
        busy = True
        try:
            with capturing_elsewhere([tracker]):
                if function is nn.TransformerEncoder.forward:
                    return without_modes(lambda: _zero_padded_steps(module, inputs, output))
                return without_modes(lambda: _restore_masked_rows(module, args, kwargs, inputs, output))
        finally:
            busy = False

    hook = register_module_forward_hook(replace, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        # PyTorch 2.13 does not remove this entry, and would later act as if global hooks were registered.
        getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {}).pop(hook.id, None)


def _forward_function(module: nn.Module) -> Any:
    """Return the `forward` of a module's class; None for compiled code."""
    return inspect.getattr_static(type(module), "forward", None)


def without_modes(function: Callable[[], Any]) -> Any:
    """Call a function without a `TorchFunctionMode`: PyTorch's layers take their fast path only without a mode.

    `handle_torch_function` removes the innermost mode while that mode calls this function again.
    """
    if has_torch_function((None,)):
        return handle_torch_function(without_modes, (), function)
    return function()


def _zero_padded_steps(encoder: Any, inputs: dict[str, Any], output: Tensor) -> Tensor | None:
    """Return the output (B, T, D) of an encoder with zeros in the steps that its fast path drops.

    A copy of the encoder without layers finds the dropped steps: the copy returns its input with zeros in these steps.
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
