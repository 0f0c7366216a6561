"""PyTorch's fast path: what its encoder layers compute without gradients, in one call that tells no weights.

A recorded or changed pass takes the slow path instead. Both agree within rounding, but for two things, which this
file brings into line: `nn.TransformerEncoder` leaves padded steps out and returns zeros for them, and a row that
sees nothing is NaN.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from regard.external.forward_tracker import ForwardTracker, capturing_elsewhere
from regard.external.torch_attention import mask_from_bias
from regard.external.torch_calls import combine_masks

LAYERS = {
    nn.MultiheadAttention.forward: ("query", "key", "key_padding_mask", "attn_mask"),
    nn.TransformerEncoderLayer.forward: ("src", "src", "src_key_padding_mask", "src_mask"),
}
"""By the function of a layer: what it calls its queries, its keys and its masks."""


@contextmanager
def match_fast_path(tracker: ForwardTracker) -> Iterator[None]:
    """Return in the block from PyTorch's layers on the slow path what the fast one would return."""
    functions = {*LAYERS, nn.TransformerEncoder.forward}
    if not any(_function(module) in functions for module in tracker.modules.values()):
        yield
        return
    hook = register_module_forward_hook(_Comparison(tracker).end, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        # PyTorch 2.13 forgets to, and then takes it that hooks are there.
        getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {}).pop(hook.id, None)


def _function(module: nn.Module) -> Any:
    """Return the function that computes a module's output; of compiled code, none."""
    return inspect.getattr_static(type(module), "forward", None)


class _Comparison:
    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker, self.busy = tracker, False

    def end(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return what the module would have returned on the fast path; None where that is the same."""
        function = _function(module)
        if self.busy or module.training or not self.tracker.here or id(module) not in self.tracker.names:
            return None
        if function is not nn.TransformerEncoder.forward and function not in LAYERS:
            return None
        given = inspect.signature(function).bind(module, *args, **kwargs).arguments
        self.busy = True
        try:
            with torch._C.DisableTorchFunction(), capturing_elsewhere([self.tracker]):
                if function is nn.TransformerEncoder.forward:
                    return _without_padding(module, given, output)
                return _with_blind_rows(module, args, kwargs, given, output)
        finally:
            self.busy = False


def _without_padding(encoder: Any, given: dict[str, Any], output: Tensor) -> Tensor | None:
    """Return the output of an encoder (B, T, D) with the steps that its fast path leaves out as that has them.

    Which these are, a copy of the encoder without layers tells: it decides as the encoder does, and returns what
    it was given, with zeros for them.
    """
    if given.get("src_key_padding_mask") is None:
        return None
    ones = torch.ones_like(given["src"]).requires_grad_(given["src"].requires_grad)
    probe = object.__new__(nn.TransformerEncoder)
    parts = {name: None for name in encoder._modules if name == "norm"}
    probe.__dict__ = vars(encoder) | {"_modules": parts, "layers": _First(encoder.layers)}
    kept = nn.TransformerEncoder.forward(**given | {"self": probe, "src": ones})
    left_out = kept == 0
    if not bool(left_out.any()):
        return None
    padded = torch.zeros_like(output) if encoder.norm is None else encoder.norm(torch.zeros_like(output))
    return torch.where(left_out, padded, output)


class _First(list[nn.Module]):
    """Layers of which the first can be looked at, and none runs."""

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(())


def _with_blind_rows(module: Any, args: Any, kwargs: Any, given: dict[str, Any], output: Any) -> Any:
    """Return the output of a layer (B, T, D) with the rows that see nothing as the layer has them without us."""
    queries, keys, padding, mask = (given.get(name) for name in LAYERS[_function(module)])
    attention = getattr(module, "self_attn", module)
    if queries is None or keys is None or queries.dim() != 3 or not attention.batch_first:
        return None
    shape = (len(queries), attention.num_heads, queries.shape[1], keys.shape[1])
    joined = combine_masks(padding, mask, shape)
    if joined is None:
        return None
    seeing = mask_from_bias(joined).any(-1).all(1)
    if bool(seeing.all()):
        return None
    plain, rows = module.forward(*args, **kwargs), seeing.expand(len(queries), queries.shape[1])[..., None]
    if isinstance(output, tuple):
        return torch.where(rows, output[0], plain[0]), *output[1:]
    return torch.where(rows, output, plain)
