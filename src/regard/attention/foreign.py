"""Recording attention that is not Regard's own: PyTorch's layers, and any call of its fused kernel.

- `nn.MultiheadAttention` is asked for its weights, which it computes explicitly then. Its callers get what they
  asked for. PyTorch's encoder has a fast path around it, which is off while recording.
- A call of `F.scaled_dot_product_attention` anywhere inside a foreign model runs unchanged, and its weights are
  computed beside it. The record has the name of the module that made the call.
- Models of Hugging Face's make such calls by default; one set to another implementation is switched for the time.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.records import Recorder


@contextmanager
def recording_foreign(
    model: nn.Module, recorder: Recorder, layers: Collection[str] | None, *, mixed: bool
) -> Iterator[list[str]]:
    """Record the foreign attention of `model`; yields the names under which it may appear.

    `mixed`: the model has layers of Regard's too.
    """
    modules = dict(model.named_modules())
    peers = {name: each for name, each in modules.items() if isinstance(each, nn.MultiheadAttention)}
    with ExitStack() as stack:
        if peers:
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
        for name, peer in peers.items():
            if layers is None or name in layers:
                stack.enter_context(_asked_for_weights(peer, name, recorder))
        if mixed:
            yield list(peers)
        else:
            # Only a model without layers of ours: they would be seen calling the kernel too.
            stack.enter_context(_calling_the_kernel(model))
            stack.enter_context(_KernelCalls(modules, recorder, layers))
            yield list(modules)


@contextmanager
def _asked_for_weights(peer: nn.MultiheadAttention, name: str, recorder: Recorder) -> Iterator[None]:
    """Make one layer of PyTorch's compute and hand over its weights, and return what its caller asked for."""
    original: Callable[..., tuple[Tensor, Tensor | None]] = peer.forward
    signature = inspect.signature(original)

    def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        asked = dict(bound.arguments)
        output, weights = original(**(asked | {"need_weights": True, "average_attn_weights": False}))
        assert weights is not None
        batched = weights if weights.dim() == 4 else weights.unsqueeze(0)
        mask = _allowed(asked["key_padding_mask"], asked["attn_mask"], batched)
        if mask is not None and recorder.partial:
            mask = recorder.select(mask.expand_as(batched))
        recorder.keep(name, recorder.select(batched), mask, queries=batched.shape[2])
        if not asked["need_weights"]:
            return output, None
        return output, weights.mean(-3) if asked["average_attn_weights"] else weights

    peer.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        del peer.forward


def _allowed(padding: Tensor | None, mask: Tensor | None, weights: Tensor) -> Tensor | None:
    """Turn PyTorch's masks, where True or -inf forbids, into one that says what may be attended."""
    allowed = None
    if padding is not None:
        padding = padding if padding.dim() == 2 else padding.unsqueeze(0)
        allowed = _may(padding)[:, None, None, :]
    if mask is not None:
        by_query = _may(mask)
        if by_query.dim() == 3:
            by_query = by_query.unflatten(0, weights.shape[:2])
        allowed = by_query if allowed is None else allowed & by_query
    return allowed


def _may(mask: Tensor) -> Tensor:
    return ~mask if mask.dtype == torch.bool else mask != float("-inf")


@contextmanager
def _calling_the_kernel(model: nn.Module) -> Iterator[None]:
    """Make a model of Hugging Face's call PyTorch's kernel for the time, whatever it computes attention with."""
    choose = getattr(model, "set_attn_implementation", None)
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if choose is None or before in (None, "sdpa"):
        yield
        return
    choose("sdpa")
    try:
        yield
    finally:
        choose(before)


class _KernelCalls(TorchFunctionMode):
    """Sees every call of the fused kernel, and knows in which module it happens."""

    def __init__(self, modules: dict[str, nn.Module], recorder: Recorder, layers: Collection[str] | None) -> None:
        super().__init__()
        self.modules, self.recorder, self.layers = modules, recorder, layers
        self.running: list[str] = []
        self.calls: list[int] = []
        self.hooks: list[Any] = []

    def __enter__(self) -> "_KernelCalls":
        for name, module in self.modules.items():

            def begin(*_: Any, name: str = name) -> None:
                self.running.append(name)
                self.calls.append(0)

            def end(*_: Any) -> None:
                self.running.pop()
                self.calls.pop()

            self.hooks.append(module.register_forward_pre_hook(begin))
            self.hooks.append(module.register_forward_hook(end, always_call=True))
        enter: Any = super().__enter__  # which has no types
        enter()
        return self

    def __exit__(self, *error: Any) -> None:
        leave: Any = super().__exit__
        leave(*error)
        for hook in self.hooks:
            hook.remove()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is not F.scaled_dot_product_attention or not self.running:
            return function(*args, **kwargs)
        name, earlier = self.running[-1], self.calls[-1]
        self.calls[-1] += 1
        if self.layers is not None and name not in self.layers:
            return function(*args, **kwargs)
        return self._attend(name if not earlier else f"{name}#{earlier}", *args, **kwargs)

    def _attend(
        self,
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
        """Run the kernel and compute its weights beside it; with dropout, compute all from one draw."""
        queries, keys, values = _four(query), _four(key), _four(value)
        if enable_gqa:
            groups = queries.shape[1] // keys.shape[1]
            keys, values = keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)
        mask = None if attn_mask is None else attn_mask.expand(*queries.shape[:3], keys.shape[2])
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        every_row = range(queries.shape[2])
        if dropout_p:
            bias = _bias(mask, every_row if is_causal else None, keys)
            weights = F.dropout(_weights(queries, keys, bias, factor), dropout_p)
            chosen = None if bias is None else bias.expand_as(weights)
            chosen = None if chosen is None else self.recorder.select(chosen)
            self._keep(name, self.recorder.select(weights), chosen, len(every_row))
            return (weights @ values).reshape(*query.shape[:-1], value.shape[-1])
        with torch.no_grad():
            rows = every_row if self.recorder.rows is None else self.recorder.rows
            mask = None if mask is None else self.recorder.select(mask)
            bias = _bias(mask, rows if is_causal else None, keys)
            weights = _weights(self.recorder.select(queries), self.recorder.select_heads(keys), bias, factor)
            self._keep(name, weights, bias, len(every_row))
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )

    def _keep(self, name: str, weights: Tensor, bias: Tensor | None, queries: int) -> None:
        mask = None if bias is None else bias != float("-inf")
        self.recorder.keep(name, weights, mask, queries=queries)


def _weights(query: Tensor, key: Tensor, bias: Tensor | None, factor: float) -> Tensor:
    """Return the weights of the kernel; a row with nothing to attend is zero, as the kernel's output is."""
    scores = query @ key.transpose(-2, -1) * factor
    scores = scores if bias is None else scores + bias
    return scores.float().softmax(-1).nan_to_num(0.0).to(query.dtype)


def _bias(mask: Tensor | None, causal_rows: Sequence[int] | None, keys: Tensor) -> Tensor | None:
    """Return what the kernel adds to the scores: its mask, and -inf for the future of the rows given."""
    if causal_rows is not None:
        steps = torch.arange(keys.shape[2], device=keys.device)
        mask = steps <= torch.tensor(causal_rows, device=keys.device).unsqueeze(-1)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=keys.dtype).masked_fill(~mask, float("-inf"))
    return mask


def _four(states: Tensor) -> Tensor:
    """Give states (..., T, D) the four dimensions (B, H, T, D)."""
    if states.dim() > 3:
        return states.reshape(-1, *states.shape[-3:])
    return states.reshape(-1, 1, *states.shape[-2:])
