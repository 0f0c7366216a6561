"""Calls of PyTorch's own attention, from whatever module: its fused kernel, and the function of its layers.

- A call of `F.scaled_dot_product_attention` runs unchanged, and its weights are worked out beside it.
- `F.multi_head_attention_forward`, which `nn.MultiheadAttention` calls, is asked for its weights. Its callers get
  what they asked for.

The record has the name of the module that made the call.
"""

import inspect
import sys
import warnings
from collections.abc import Collection, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.records import Kind
from regard.foreign.keeper import Call, Keeper, rows_of

LEAST_OF_HEADS = -50.0
"""The same where every head has its own bias: Swin adds -100 to it, and e to the -50 is nothing."""
FORWARD = inspect.signature(F.multi_head_attention_forward)
LEAST = -9000.0
"""What masks a score when added to it, or less: models take -inf, the least number, or -10000."""


def may_call(model: nn.Module) -> bool:
    """Say whether anything in a model may call PyTorch's attention, as far as its code shows.

    Seeing every call of PyTorch's costs time: Regard's own models, and those of Hugging Face's whose files name
    none of those functions, and have none of PyTorch's layers, are spared.
    """
    kinds: set[Any] = {type(module) for module in model.modules()}
    return any(map(_may_call, kinds))


@cache
def _may_call(kind: Any) -> bool:
    if kind.__module__.startswith("torch.nn.modules.") and kind is not nn.MultiheadAttention:
        return "transformer" in kind.__module__
    if kind.__module__.startswith("regard."):
        return False
    if not kind.__module__.startswith("transformers."):
        return True
    source = inspect.getsource(sys.modules[kind.__module__])
    return any(each.__name__ in source for each in ASKED) or "nn.MultiheadAttention" in source


class KernelCalls(TorchFunctionMode):
    """Sees every call in the block; `apart`: names of modules whose calls are recorded in another way."""

    def __init__(self, keeper: Keeper, apart: Collection[str]) -> None:
        super().__init__()
        self.keeper, self.apart = keeper, apart

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        record = ASKED.get(function)
        passes = self.keeper.passes
        if record is None or not passes.running or passes.seen_elsewhere or passes.running[-1] in self.apart:
            return function(*args, **kwargs)
        self.keeper.elsewhere.add(passes.running[-1])
        name = self.keeper.next(passes.running[-1])
        return function(*args, **kwargs) if name is None else record(self.keeper, name, *args, **kwargs)


def _forward(keeper: Keeper, name: str, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Ask the function of PyTorch's layers for weights, and return what its caller asked for."""
    bound = FORWARD.bind(*args, **kwargs)
    bound.apply_defaults()
    asked = dict(bound.arguments)
    output, weights = F.multi_head_attention_forward(
        **(asked | {"need_weights": True, "average_attn_weights": False})
    )
    assert weights is not None
    every = weights if weights.dim() == 4 else weights.unsqueeze(0)
    mask = _allowed(asked["key_padding_mask"], asked["attn_mask"], every)

    def rows(chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        return every[:, :, chosen], None if mask is None else rows_of(mask, chosen)

    kind: Kind = "cross" if asked["query"] is not asked["key"] else self_attention(mask, every.shape[2])
    keeper.keep(name, Call(queries=every.shape[2], rows=rows, kind=kind))
    if not asked["need_weights"]:
        return output, None
    return output, weights.mean(-3) if asked["average_attn_weights"] else weights


def _allowed(padding: Tensor | None, mask: Tensor | None, weights: Tensor) -> Tensor | None:
    """Turn PyTorch's masks, where True or -inf forbids, into one that says what may be attended.

    Keys that the layer itself adds stand after all others, and are free.
    """
    allowed = None
    if padding is not None:
        padding = padding if padding.dim() == 2 else padding.unsqueeze(0)
        allowed = _may(padding)[:, None, None, :]
    if mask is not None:
        by_query = _may(mask)
        if by_query.dim() == 3:
            by_query = by_query.unflatten(0, weights.shape[:2])
        allowed = by_query if allowed is None else allowed & by_query
    if allowed is None:
        return None
    return F.pad(allowed, (0, weights.shape[-1] - allowed.shape[-1]), value=True)


def _may(mask: Tensor) -> Tensor:
    return ~mask if mask.dtype == torch.bool else mask != float("-inf")


def allowed_by(bias: Tensor) -> Tensor:
    """Turn what a model adds to its scores into a mask, True = may attend."""
    if bias.dtype == torch.bool:
        return bias
    return bias > (LEAST if bias.dim() < 4 or bias.shape[1] == 1 else LEAST_OF_HEADS)


def self_attention(mask: Tensor | None, queries: int) -> Kind:
    """Say what self-attention has this mask (..., Tq, Tk): one that never sees the future is a decoder's."""
    if mask is None or queries < 2 or mask.shape[-2] < 2:
        return "encoder"
    return "encoder" if mask.triu(mask.shape[-1] - mask.shape[-2] + 1).any() else "decoder"


def _attend(
    keeper: Keeper,
    name: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Run the kernel and work out its weights beside it; with dropout, work out all from one draw."""
    given: Any = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    unchanged = partial(F.scaled_dot_product_attention, query, key, value, dropout_p=dropout_p, **given)
    if any(each.is_nested for each in (query, key, value)):
        warnings.warn(
            f"attention of {name!r} is over jagged tensors, which are not recorded: pad them, and give a mask",
            stacklevel=3,
        )
        return unchanged()
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=-3), value.repeat_interleave(groups, dim=-3)
    inputs = _Inputs(query, key, value, attn_mask, is_causal, scale)
    if dropout_p:
        weights, mask = inputs.weights(slice(None))
        weights = F.dropout(weights.to(query.dtype), dropout_p)
        keeper.keep(name, Call(queries=inputs.queries, rows=lambda chosen: _of(weights, mask, chosen)))
        return (weights @ inputs.value).reshape(*inputs.lead, inputs.queries, value.shape[-1])
    with torch.no_grad():
        keeper.keep(name, Call(queries=inputs.queries, rows=inputs.weights))
    return unchanged()


def _of(weights: Tensor, mask: Tensor | None, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
    return weights[:, :, chosen], mask if mask is None else rows_of(mask, chosen)


class _Inputs:
    """What the kernel was given, with the four dimensions (B, H, T, D), whatever it had."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float | None
    ) -> None:
        self.lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        self.queries, self.factor = query.shape[-2], query.shape[-1] ** -0.5 if scale is None else scale
        self.query, self.key, self.value = (_four(each, self.lead) for each in (query, key, value))
        self.causal = causal
        self.mask = None
        if mask is not None:
            self.mask = _four(mask.expand(*mask.shape[:-2], self.queries, self.key.shape[2]), self.lead)

    def weights(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some rows, and their mask; a row with nothing to attend is zero."""
        query = self.query[:, :, rows]
        scores = _exact(query) @ _exact(self.key).transpose(-2, -1) * self.factor
        mask = None if self.mask is None else rows_of(self.mask, rows)
        if self.causal:
            steps = torch.arange(self.key.shape[2], device=query.device)
            mask = steps <= torch.arange(self.queries, device=query.device)[rows].unsqueeze(-1)
        if mask is None:
            return scores.softmax(-1), None
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0), mask
        return (scores + mask).softmax(-1).nan_to_num(0.0), allowed_by(mask)


def _exact(states: Tensor) -> Tensor:
    """Return states of half precision in float32, in which softmax is."""
    return states.float() if states.dtype in (torch.bfloat16, torch.float16) else states


def _four(states: Tensor, lead: torch.Size) -> Tensor:
    """Give states (..., T, D) the dimensions (B, H, T, D)."""
    states = states.expand(*lead, *states.shape[-2:])
    if len(lead) == 2:
        return states
    if len(lead) > 2:
        return states.reshape(-1, *states.shape[-3:])
    return states.reshape(-1, 1, *states.shape[-2:])


ASKED: dict[Any, Any] = {F.scaled_dot_product_attention: _attend, F.multi_head_attention_forward: _forward}
