"""Calls of PyTorch's own attention, from whatever module: its fused kernel, and the function of its layers.

- Calls of `F.scaled_dot_product_attention` and of `F.multi_head_attention_forward`, which `nn.MultiheadAttention`
  makes, run unchanged. Their weights are worked out beside them, unless they return them.
- What comes out of a softmax in a layer that works by hand can be changed; it is recorded elsewhere.

The record has the name of the module that made the call.
"""

import inspect
import sys
import threading
import warnings
from collections.abc import Collection, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.layer_record import Kind
from regard.foreign.folding import probing
from regard.foreign.keeper import (
    Call,
    Keeper,
    Toucher,
    rows_of,
    share_off,
    with_changed_rows,
    without_blind,
)
from regard.foreign.kernel_inputs import KernelInputs, self_attention
from regard.foreign.passes import unseen_elsewhere
from regard.foreign.softmaxes import SOFTMAXES, touched_softmax

FORWARD = inspect.signature(F.multi_head_attention_forward)


def may_call(kinds: Collection[Any]) -> bool:
    """Say whether modules of some classes may call PyTorch's attention, as far as their code shows.

    Seeing every call of PyTorch's costs time: Regard's own models, and those of Hugging Face's whose files name
    none of those functions, and have none of PyTorch's layers, are spared.
    """
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
    """Sees every call in the block; `apart`: names of modules whose calls are recorded in another way.

    Of several in a thread, the one that sees a call first answers for all.
    """

    def __init__(self, keeper: Keeper, apart: Collection[str]) -> None:
        super().__init__()
        self.keeper, self.apart = keeper, apart

    def __enter__(self) -> "KernelCalls":
        _here().append(self)
        mode: Any = super()
        mode.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        mode: Any = super()
        mode.__exit__(*given)
        _here().remove(self)

    @property
    def looks(self) -> bool:
        """Whether a call that is made now is one to look at."""
        passes = self.keeper.passes
        return bool(passes.running) and not passes.seen_elsewhere and passes.running[-1] not in self.apart

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = ASKED.get(function)
        if (answer is None and function not in SOFTMAXES) or (answer is not None and probing()):
            return function(*args, **kwargs)
        looking = [each.keeper for each in _here() if each.looks]
        with unseen_elsewhere(keeper.passes for keeper in looking):
            if answer is None:
                return touched_softmax(looking, function(*args, **kwargs), args, kwargs)
            asked = []
            for keeper in looking:
                keeper.elsewhere.add(keeper.passes.running[-1])
                name = keeper.next(keeper.passes.running[-1])
                if name is not None:
                    asked.append((keeper, name))
            return answer(asked, *args, **kwargs) if asked else function(*args, **kwargs)


_local = threading.local()


def _here() -> list[KernelCalls]:
    """Return who looks on in this thread."""
    if not hasattr(_local, "looking"):
        _local.looking = []
    found: list[KernelCalls] = _local.looking
    return found


def changed_by_hand(layer: nn.Module) -> Tensor | None:
    """Return the weights that an intervention has left in a layer which works by hand; None where none has."""
    found = [each.keeper.after.get(id(layer)) for each in _here() if isinstance(each.keeper, Toucher)]
    return next((each for each in reversed(found) if each is not None), None)


Asked = Sequence[tuple[Keeper, str]]
"""Who wants a call, and how each calls it."""


def _hand_over(asked: Asked, weights: Tensor, mask: Tensor | None, kind: Kind | None = None) -> None:
    """Hand weights that are worked out over to all who keep them."""
    for keeper, name in asked:
        queries = weights.shape[2]
        rows = partial(_of, weights, mask)
        keeper.keep(name, Call(queries=queries, rows=rows, kind=kind))


def _changed(asked: Asked, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Change weights as those ask who touch them, in their order."""
    for keeper, _ in asked:
        weights = keeper.changed(weights, mask)
    return weights


def _forward(asked: Asked, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Run the function of PyTorch's layers as its caller asked, and take its weights; where its caller asked for
    none, it takes the fused kernel, and weights are worked out beside it, before dropout."""
    bound = FORWARD.bind(*args, **kwargs)
    bound.apply_defaults()
    given = dict(bound.arguments)
    wanted, dropout = given["need_weights"], given["dropout_p"] if given["training"] else 0.0
    output, own = F.multi_head_attention_forward(**given | {"average_attn_weights": False})
    touching = any(keeper.touches for keeper, _ in asked)
    with torch.set_grad_enabled(touching and torch.is_grad_enabled()):
        inputs = _projected(given)
    kind: Kind | None = None if given["query"] is given["key"] else "cross"
    if own is None and not touching:
        with torch.no_grad():
            for keeper, name in asked:
                call_kind = kind or self_attention(inputs.allowed, inputs.queries)
                keeper.keep(name, Call(queries=inputs.queries, rows=inputs.weights, kind=call_kind))
        return output, None
    if own is None:
        weights, mask = inputs.weights(slice(None))
    else:
        mask = inputs.allowed
        weights = without_blind(own if own.dim() == 4 else own.unsqueeze(0), mask)
    changed = _changed(asked, weights, mask)
    if changed is not weights:
        rows = (changed != weights).any(-1).any(1).T.reshape(output.shape[:-1])
        context = _context(changed if wanted else F.dropout(changed, dropout), given).to(output.dtype)
        output = with_changed_rows(output, context, rows)
        own = None if own is None else changed.to(own.dtype).reshape(own.shape)
    _hand_over(asked, changed, mask, kind or self_attention(mask, inputs.queries))
    return output, own.mean(-3) if own is not None and given["average_attn_weights"] else own


def _projected(given: dict[str, Any]) -> KernelInputs:
    """Return what the kernel gets of queries and keys, from what the function of PyTorch's layers was given."""
    heads, query, key = given["num_heads"], given["query"], given["key"]
    query, key = (each if each.dim() == 3 else each.unsqueeze(1) for each in (query, key))
    if given["use_separate_proj_weight"]:
        matrices = given["q_proj_weight"], given["k_proj_weight"]
    else:
        matrices = given["in_proj_weight"].chunk(3)[:2]
    biases = (None, None) if given["in_proj_bias"] is None else given["in_proj_bias"].chunk(3)[:2]
    batch = query.shape[1]
    query = F.linear(query, matrices[0], biases[0]).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    if given["static_k"] is None:
        key = F.linear(key, matrices[1], biases[1])
        if given["bias_k"] is not None:
            key = torch.cat([key, given["bias_k"].expand(1, batch, -1)])
        key = key.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    else:
        key = given["static_k"].unflatten(0, (batch, heads))
    key = F.pad(key, (0, 0, 0, int(given["add_zero_attn"])))
    padding, forbidden = given["key_padding_mask"], given["attn_mask"]
    mask = joined_masks(padding, forbidden, (batch, heads, query.shape[2], key.shape[2]))
    inputs = KernelInputs(query, key, key)
    inputs.mask = mask[0, 0] if mask is not None and padding is None and forbidden.dim() == 2 else mask
    return inputs


def joined_masks(padding: Tensor | None, mask: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Return PyTorch's masks, where True or a large negative number forbids, as one for the kernel: True may be
    attended, or what is added to the scores. Keys that the layer itself adds stand last, and are free."""
    masks = []
    if padding is not None:
        masks.append((padding if padding.dim() == 2 else padding.unsqueeze(0))[:, None, None, :])
    if mask is not None:
        masks.append(mask.unflatten(0, shape[:2]) if mask.dim() == 3 else mask[None, None])
    if not masks:
        return None
    if all(each.dtype == torch.bool for each in masks):
        allowed = ~(masks[0] | masks[-1])
        return F.pad(allowed, (0, shape[-1] - allowed.shape[-1]), value=True)
    biases = [
        torch.zeros_like(each, dtype=torch.float32).masked_fill(each, LEAST_EXACT)
        if each.dtype == torch.bool
        else each.float().clamp(min=LEAST_EXACT)
        for each in masks
    ]
    return F.pad(sum(biases[1:], biases[0]), (0, shape[-1] - biases[0].shape[-1]))


LEAST_EXACT = torch.finfo(torch.float32).min / 4
"""What forbids in float32; two of it can be added."""


def _context(weights: Tensor, given: dict[str, Any]) -> Tensor:
    """Return what PyTorch's layers return, of other weights (B, H, Tq, Tk): their context, (Tq, B, D)."""
    value = given["static_v"]
    if value is None:
        value = _values(given)
        if given["bias_v"] is not None:
            value = torch.cat([value, given["bias_v"].expand(1, *value.shape[1:])])
        value = value.unflatten(-1, (weights.shape[1], -1)).permute(1, 2, 0, 3)  # (B, H, Tk, Dv)
    value = value.reshape(*weights.shape[:2], -1, value.shape[-1])
    value = F.pad(value, (0, 0, 0, weights.shape[-1] - value.shape[-2]))  # a key of zeros, if it adds one
    found = (weights.to(value.dtype) @ value).permute(2, 0, 1, 3).flatten(2)
    projected = F.linear(found, given["out_proj_weight"], given["out_proj_bias"])
    return projected if given["query"].dim() == 3 else projected.squeeze(1)


def _values(given: dict[str, Any]) -> Tensor:
    """Project the values (Tk, B, D) that a layer of PyTorch's was given."""
    value, bias = given["value"], given["in_proj_bias"]
    value = value if value.dim() == 3 else value.unsqueeze(1)
    weight = given["v_proj_weight"] if given["use_separate_proj_weight"] else given["in_proj_weight"].chunk(3)[2]
    return F.linear(value, weight, None if bias is None else bias.chunk(3)[2])


def _bound(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return by name what the kernel was given; dropout is not its inputs'."""
    return dict(zip(GIVEN, args, strict=False)) | kwargs


GIVEN = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""What the kernel takes by its place."""


def _attend(asked: Asked, *args: Any, **kwargs: Any) -> Tensor:
    """Run the kernel, and work out its weights beside it; rows that are changed take theirs."""
    unchanged = partial(F.scaled_dot_product_attention, *args, **kwargs)
    given = _bound(*args, **kwargs)
    if any(given[each].is_nested for each in GIVEN[:3]):
        names = ", ".join(repr(name) for _, name in asked)
        warnings.warn(
            f"attention of {names} is over jagged tensors, which are not recorded: pad them, and give a mask",
            stacklevel=3,
        )
        return unchanged()
    state = torch.get_rng_state() if given.get("dropout_p") else None
    inputs, output = KernelInputs(**given), unchanged()
    if any(keeper.touches for keeper, _ in asked):
        before, mask = inputs.weights(slice(None))
        weights = _changed(asked, before, mask)
        rows = (weights != before).any(-1).reshape(output.shape[:-1])
        _hand_over(asked, weights, mask)
        return with_changed_rows(output, inputs.context(F.dropout(weights, inputs.dropout)), rows)
    with torch.no_grad():
        if state is not None:
            _hand_over(asked, *_dropped(inputs, output, state))
        else:
            for keeper, name in asked:
                keeper.keep(name, Call(queries=inputs.queries, rows=inputs.weights))
    return output


def _dropped(inputs: KernelInputs, output: Tensor, state: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return weights and mask after the dropout that the kernel drew from a state of the CPU's generator; before
    it, where the kernel draws in another way."""
    weights, mask = inputs.weights(slice(None))
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        dropped = F.dropout(weights, inputs.dropout)
    return (dropped if share_off(inputs.context(dropped), output) is None else weights), mask


def _of(weights: Tensor, mask: Tensor | None, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
    return weights[:, :, chosen], mask if mask is None else rows_of(mask, chosen)


ASKED: dict[Any, Any] = {F.scaled_dot_product_attention: _attend, F.multi_head_attention_forward: _forward}
