"""Weights of PyTorch's own attention: `F.scaled_dot_product_attention` and `F.multi_head_attention_forward`.

Both functions run unchanged. If a call returns no weights, the weights are computed separately.
`nn.MultiheadAttention` calls the second one. See `torch_calls` for how calls are intercepted.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.activations.attention_axes import Axes
from regard.activations.capture_session import (
    HALF,
    AttentionCall,
    AttentionInputs,
    CaptureSession,
    OneHead,
    nonzero_keys,
    relative_difference,
    replace_rows,
    select_rows,
    zero_masked_rows,
)
from regard.attention.records import Kind, merge_levels

MASKED = -9000.0
"""A bias up to this value masks a score. Models add -inf, the smallest number of the dtype, or -10000."""
MASKED_PER_HEAD = -50.0
"""The largest masking value of a bias that differs by head: Swin adds -100 to a learned bias, and exp(-50) is
below rounding."""
FORBIDDEN = torch.finfo(torch.float32).min / 4
"""The float32 bias that masks a score; the sum of two such biases remains finite."""
FORWARD = inspect.signature(F.multi_head_attention_forward)
POSITIONAL = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Positional parameters of `F.scaled_dot_product_attention`."""

Requests = Sequence[tuple[CaptureSession | OneHead, str]]
"""The sessions that record a call, and the name of the call in each session."""


def mask_from_bias(bias: Tensor) -> Tensor:
    """Return a mask, True = may attend, from a mask or from an additive bias.

    >>> mask_from_bias(torch.tensor([[0.0, -10000.0], [-1.5, 0.0]])).tolist()
    [[True, False], [True, True]]
    """
    if bias.dtype == torch.bool:
        return bias
    return bias > (MASKED if bias.dim() < 4 or bias.shape[1] == 1 else MASKED_PER_HEAD)


def self_attention_kind(mask: Tensor | None, queries: int) -> Kind:
    """Return "decoder" for a mask (..., Tq, Tk) that hides the future of every query, else "encoder".

    >>> self_attention_kind(torch.ones(3, 3, dtype=torch.bool).tril(), 3)
    'decoder'
    """
    if mask is None or queries < 2 or mask.shape[-2] < 2:
        return "encoder"
    (mask,) = merge_levels(mask[None])
    return "encoder" if mask.triu(mask.shape[-1] - mask.shape[-2] + 1).any() else "decoder"


def describe_weights(weights: Tensor, *, flat: bool) -> AttentionCall:
    """Return the call of a module that computes weights (B, H, Tq, Tk) in its own code, without a mask."""
    mask, square = nonzero_keys(weights), weights.shape[2] == weights.shape[3]
    kind = self_attention_kind(mask, weights.shape[2]) if square else None
    return dataclasses.replace(AttentionCall.from_weights(weights, mask, kind), flat=flat)


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
            scores = _float32(query) @ _float32(self.key).transpose(-2, -1) * self.scale
        mask = None if self.mask is None else select_rows(self.mask, rows)
        if self.causal:
            steps = torch.arange(self.key.shape[2], device=query.device)
            mask = steps <= torch.arange(self.queries, device=query.device)[rows].unsqueeze(-1)
        if mask is None:
            return scores.softmax(-1), None
        # Use a finite number instead of -inf, so that a fully masked row is not NaN in the forward or backward
        # pass.
        allowed, least = mask_from_bias(mask), torch.finfo(scores.dtype).min / 4
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, least)
        else:
            scores = scores + mask.to(scores.dtype).clamp(min=least)
        return zero_masked_rows(scores.softmax(-1), allowed), allowed


def _float32(states: Tensor) -> Tensor:
    """Return states of half precision in float32, because softmax is computed in float32."""
    return states.float() if states.dtype in HALF else states


def _record(requests: Requests, weights: Tensor, mask: Tensor | None, kind: Kind | None = None) -> None:
    for session, name in requests:
        session.record_call(name, AttentionCall.from_weights(weights, mask, kind))


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
    leads = (
        states.shape[: -2 - bool(query.shape[grouped])] + query.shape[grouped] for states in (query, key, value)
    )
    return (*torch.broadcast_shapes(*leads), query.shape[-2], key.shape[-2])


def record_sdpa(requests: Requests, axes: Axes | None, *args: Any, **kwargs: Any) -> Tensor:
    """Run `F.scaled_dot_product_attention` and record its weights; changed rows are computed from the changed
    weights."""
    unchanged = partial(F.scaled_dot_product_attention, *args, **kwargs)
    inputs = dict(zip(POSITIONAL, args, strict=False)) | kwargs
    if any(inputs[name].is_nested for name in POSITIONAL[:3]):
        names = ", ".join(repr(name) for _, name in requests)
        warnings.warn(
            f"attention of {names} uses jagged tensors, which cannot be recorded: pad the tensors, and give"
            " a mask",
            stacklevel=3,
        )
        return unchanged()
    random_state = torch.get_rng_state() if inputs.get("dropout_p") else None
    call = SDPACall(**inputs, axes=axes)
    receiving = [session for session, _ in requests if session.receives]
    before = call.query, call.key, call.value
    for session in receiving:
        session.inputs = call.inputs
        call.query, call.key, call.value = (
            session.receive(kind, part) for kind, part in (("q", call.query), ("k", call.key), ("v", call.value))
        )
    if all(new is old for new, old in zip((call.query, call.key, call.value), before, strict=True)):
        output = unchanged()
    else:
        output = call.run()
    output = _record_sdpa(requests, call, output, axes, random_state)
    if receiving:
        contexts = first = call.by_head(output)
        for session in receiving:
            contexts = session.receive("z", contexts)
        output = output if contexts is first else call.as_output(contexts)
    return output


def _record_sdpa(
    requests: Requests, call: "SDPACall", output: Tensor, axes: Axes | None, random_state: Tensor | None
) -> Tensor:
    if any(session.intervenes for session, _ in requests):
        before, mask = call.weights(slice(None))
        weights = _change(requests, before, mask)
        changed, flat = (weights != before).any(-1, keepdim=True), (*output.shape[:-1], 1)
        rows = (changed.reshape(flat) if axes is None else axes.fold(changed, flat))[..., 0]
        _record(requests, weights, mask, call.kind)
        return replace_rows(output, call.context(F.dropout(weights, call.dropout)), rows)
    with torch.no_grad():
        if random_state is not None:
            _record(requests, *_after_dropout(call, output, random_state), call.kind)
        else:
            for session, name in requests:
                known = AttentionCall(queries=call.queries, rows=call.weights, inputs=call.inputs, kind=call.kind)
                session.record_call(name, known)
    return output


def _after_dropout(call: SDPACall, output: Tensor, random_state: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return weights and mask after the dropout that the kernel drew from a state of the CPU generator.

    A kernel that draws dropout differently is detected by its output; the weights before dropout are then
    returned.
    """
    weights, mask = call.weights(slice(None))
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(random_state)
        dropped = F.dropout(weights, call.dropout)
    return (dropped if relative_difference(call.context(dropped), output) is None else weights), mask


def record_multi_head(requests: Requests, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Run `F.multi_head_attention_forward` with the caller's arguments, and record its weights.

    If the caller requests no weights, the fused kernel runs, and the weights before dropout are computed
    separately.
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
        call = _project(inputs)
    kind: Kind | None = None if inputs["query"] is inputs["key"] else "cross"
    if returned is None and not intervenes:
        with torch.no_grad():
            for session, name in requests:
                call_kind = kind or self_attention_kind(call.allowed, call.queries)
                session.record_call(name, AttentionCall(queries=call.queries, rows=call.weights, kind=call_kind))
        return output, None
    if returned is None:
        weights, mask = call.weights(slice(None))
    else:
        mask = call.allowed
        weights = zero_masked_rows(returned if returned.dim() == 4 else returned.unsqueeze(0), mask)
    changed = _change(requests, weights, mask)
    if changed is not weights:
        rows = (changed != weights).any(-1).any(1).T.reshape(output.shape[:-1])
        context = _project_context(changed if needs_weights else F.dropout(changed, dropout), inputs)
        output = replace_rows(output, context.to(output.dtype), rows)
        returned = None if returned is None else changed.to(returned.dtype).reshape(returned.shape)
    _record(requests, changed, mask, kind or self_attention_kind(mask, call.queries))
    if returned is not None and inputs["average_attn_weights"]:
        return output, returned.mean(-3)
    return output, returned


def _project(inputs: dict[str, Any]) -> SDPACall:
    """Return the projected queries and keys of `F.multi_head_attention_forward`; the values are not projected."""
    heads, query, key = inputs["num_heads"], inputs["query"], inputs["key"]
    query, key = (tensor if tensor.dim() == 3 else tensor.unsqueeze(1) for tensor in (query, key))
    if inputs["use_separate_proj_weight"]:
        matrices = inputs["q_proj_weight"], inputs["k_proj_weight"]
    else:
        matrices = inputs["in_proj_weight"].chunk(3)[:2]
    biases = (None, None) if inputs["in_proj_bias"] is None else inputs["in_proj_bias"].chunk(3)[:2]
    batch = query.shape[1]
    query = F.linear(query, matrices[0], biases[0]).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    if inputs["static_k"] is None:
        key = F.linear(key, matrices[1], biases[1])
        if inputs["bias_k"] is not None:
            key = torch.cat([key, inputs["bias_k"].expand(1, batch, -1)])
        key = key.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    else:
        key = inputs["static_k"].unflatten(0, (batch, heads))
    key = F.pad(key, (0, 0, 0, int(inputs["add_zero_attn"])))
    padding, forbidden = inputs["key_padding_mask"], inputs["attn_mask"]
    mask = combine_masks(padding, forbidden, (batch, heads, query.shape[2], key.shape[2]))
    call = SDPACall(query, key, key)
    call.mask = mask[0, 0] if mask is not None and padding is None and forbidden.dim() == 2 else mask
    return call


def combine_masks(padding: Tensor | None, mask: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Return the masks of a PyTorch layer as a single mask for SDPA, which broadcasts to `shape` (B, H, Tq,
    Tk).

    In the layer's masks, True or a large negative number hides a key. In the result, True allows attention, or
    a number is added to the scores. Keys that the layer itself appends come last, and every query may attend to
    them.
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
    call = _project(inputs)
    call.value = _values_by_head(inputs, call.query.shape[1], call.key.shape[2])
    before = call.query, call.key, call.value
    for session, _ in requests:
        session.inputs = call.inputs
        call.query, call.key, call.value = (
            session.receive(kind, part) for kind, part in (("q", call.query), ("k", call.key), ("v", call.value))
        )
    first, mask = call.weights(slice(None))
    weights = _change(requests, first, mask)
    dropout = inputs["dropout_p"] if inputs["training"] else 0.0
    kind = None if inputs["query"] is inputs["key"] else "cross"
    _record(
        [request for request in requests if not request[0].receives],
        weights,
        mask,
        kind or self_attention_kind(mask, call.queries),  # type: ignore[arg-type]
    )
    context = contexts = F.dropout(weights, dropout).to(call.value.dtype) @ call.value
    for session, _ in requests:
        contexts = session.receive("z", contexts)
    parts = (call.query, call.key, call.value, weights, contexts)
    if all(new is old for new, old in zip(parts, (*before, first, context), strict=True)):
        return F.multi_head_attention_forward(**inputs)
    returned = weights.mean(1) if inputs["average_attn_weights"] else weights
    return _project_output(contexts, inputs), returned if inputs["need_weights"] else None


def _project_context(weights: Tensor, inputs: dict[str, Any]) -> Tensor:
    """Return the output (Tq, B, D) of a PyTorch layer for changed weights (B, H, Tq, Tk)."""
    value = _values_by_head(inputs, weights.shape[1], weights.shape[-1])
    return _project_output(weights.to(value.dtype) @ value, inputs)


def _project_output(context: Tensor, inputs: dict[str, Any]) -> Tensor:
    """Return the output (Tq, B, D) of a PyTorch layer for contexts (B, H, Tq, Dv)."""
    output = F.linear(context.permute(2, 0, 1, 3).flatten(2), inputs["out_proj_weight"], inputs["out_proj_bias"])
    return output if inputs["query"].dim() == 3 else output.squeeze(1)


def _values_by_head(inputs: dict[str, Any], heads: int, keys: int) -> Tensor:
    """Return the values (B, H, Tk, Dv) of a PyTorch layer, with the key of zeros if the layer adds one."""
    value = inputs["static_v"]
    if value is None:
        value = _project_values(inputs)
        if inputs["bias_v"] is not None:
            value = torch.cat([value, inputs["bias_v"].expand(1, *value.shape[1:])])
        value = value.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    value = value.reshape(-1, heads, *value.shape[-2:])
    return F.pad(value, (0, 0, 0, keys - value.shape[-2]))


def _project_values(inputs: dict[str, Any]) -> Tensor:
    """Return the projected values (Tk, B, D) of a PyTorch layer."""
    value, bias = inputs["value"], inputs["in_proj_bias"]
    value = value if value.dim() == 3 else value.unsqueeze(1)
    separate = inputs["use_separate_proj_weight"]
    weight = inputs["v_proj_weight"] if separate else inputs["in_proj_weight"].chunk(3)[2]
    return F.linear(value, weight, None if bias is None else bias.chunk(3)[2])


CAPTURED = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
"""Functions that are replaced during a recording."""
