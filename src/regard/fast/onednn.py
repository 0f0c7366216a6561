"""Large float32 matrix products on a CPU by oneDNN instead of MKL.

Replaces `torch.mm`, `torch.addmm` and `F.linear` without gradients.
Gain: up to 2.3x for a product on an AMD EPYC; training Signal 2 takes 1.2 times as long without it, `regard score` 1.4
times (docs/dev/benchmarks.md, "Fast paths" and "Products in float32"). The fast path is not used for gradients, other
dtypes, other devices, small products, autocast, compiled or traced code, tensor subclasses, transforms of `torch.func`,
builds of PyTorch without oneDNN, processors on which MKL is as fast (see `is_faster`), or with `REGARD_REFERENCE=1`.

PyTorch computes float32 products with MKL, which uses half of the vector width on processors that are not from
Intel. This module calls the same oneDNN function as PyTorch's compiler. oneDNN compiles a kernel for each
shape, which takes half a millisecond and half a megabyte, and caches the latest kernels. Therefore,
`onednn_matmul` is for shapes that recur at each step, and the other functions pad the number of rows to one of
a few values. A search multiplies a few rows by the same matrices at each step.

Letters: N rows of D columns, V rows of a weight.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from regard.fast import enabled
from regard.machine import choose

PRODUCTS = "float32-products"  # Name of the measured choice between MKL and oneDNN
MIN_MULTIPLICATIONS = 1 << 20  # Smallest number of multiplications in a product for which oneDNN is faster
MIN_PACKED = 1 << 18
"""Smallest number of values in a matrix for which packing is faster at any number of rows."""
MIN_PADDED = 128  # Smallest number of rows for which oneDNN is faster in spite of padding
ROW_MULTIPLE = 16  # The number of rows is padded to a multiple of at least this number


class OneDNNMode(TorchFunctionMode):
    """Context in which large products of PyTorch's linear layers are computed by oneDNN."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, or its oneDNN replacement if `func` is `F.linear`."""
        return (_linear if func is F.linear else func)(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input Wᵀ + b` (..., V) for input (..., D), weight (V, D) and bias (V,)."""
    matches = input.dim() > 1 and weight.dim() == 2 and input.shape[-1] == weight.shape[1]
    large = input.numel() * weight.shape[0] >= MIN_MULTIPLICATIONS
    if not (matches and large and _is_vector(bias, len(weight)) and _is_plain(bias, input, weight)):
        return F.linear(input, weight, bias)
    rows = pad_rows(input.reshape(-1, input.shape[-1]))
    outputs = linear_by_onednn(_contiguous(rows), _contiguous(weight), bias)
    return outputs[: input.shape[:-1].numel()].view(*input.shape[:-1], -1)


def onednn_matmul(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `left @ right + bias` for matrices (N, D) and (D, V) and a bias (V,)."""
    large = left.numel() * right.shape[1] >= MIN_MULTIPLICATIONS
    if not (large and _is_vector(bias, right.shape[1]) and _is_plain(bias, left, right)):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    return linear_by_onednn(_contiguous(left), _contiguous(right.t()), bias)


class PackedLinear:
    """`F.linear` for states (N, D) with a constant weight (V, D), rearranged once for oneDNN or transposed for MKL."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight, large = weight.detach(), weight.numel() >= MIN_PACKED
        self.bias = None if bias is None else bias.detach()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight) if _is_wide(weight) and available() else None
        self._min_rows = math.inf if self._packed is None else 0 if large else MIN_MULTIPLICATIONS / weight.numel()
        """Smallest number of rows for which the packed matrix is faster than the transposed matrix."""
        self._transposed = weight.t().contiguous() if self._min_rows else weight.t()

    def __call__(self, states: Tensor) -> Tensor:
        """Return outputs (..., V) for states (..., D)."""
        if states.dim() != 2:
            outputs: Tensor = self(states.flatten(0, -2)).unflatten(0, states.shape[:-1])
            return outputs
        count = len(states)
        if self._packed is not None and self._use_onednn(count):
            rows = pad_rows(states) if self._min_rows else states
            return linear_by_onednn(rows, self._packed, self.bias)[:count]
        if self.bias is None:
            return torch.mm(states, self._transposed)
        return torch.addmm(self.bias, states, self._transposed)

    def write(self, outputs: Tensor, states: Tensor) -> None:
        if self.bias is not None or self._use_onednn(states.shape[0]):
            outputs.copy_(self(states))
        else:
            torch.mm(states, self._transposed, out=outputs)

    def add_to(self, sums: Tensor, states: Tensor) -> Tensor:
        """Add the product of states (N, D) and the weight to `sums` (N, V) in place, and return `sums`."""
        if self._use_onednn(states.shape[0]):
            return sums.add_(self(states))
        sums.addmm_(states, self._transposed)
        return sums if self.bias is None else sums.add_(self.bias)

    def _use_onednn(self, count: int) -> bool:
        """Return whether oneDNN is faster for `count` rows. For few rows, padding takes longer than oneDNN saves."""
        enough = not self._min_rows or count >= MIN_PADDED or not count % ROW_MULTIPLE
        return count >= self._min_rows and enough


def packed_logits(model: Any) -> Callable[[Tensor], Tensor]:
    """Return `model.logits`, or a faster function with a packed weight. The function has no gradients, and is valid
    until the parameters of the model change. `model`: one with a `vocabulary_layer`, weight (V, D) and bias (V,)."""
    weight, bias = model.vocabulary_layer
    return PackedLinear(weight, bias) if weight.numel() >= MIN_PACKED and _is_wide(weight) else model.logits


def pad_rows(rows: Tensor) -> Tensor:
    """Append rows of zeros to a matrix (N, D) up to a multiple of 16, or of a larger power of two for many rows."""
    count = len(rows)
    multiple = max(ROW_MULTIPLE, 1 << max(count.bit_length() - 3, 0))
    missing = -count % multiple
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def available() -> bool:
    """Return whether fast paths are enabled, PyTorch has the oneDNN product that its compiler uses, and this
    product is faster than MKL's."""
    mkldnn = torch.backends.mkldnn
    built = bool(mkldnn.is_available() and mkldnn.enabled) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return built and enabled() and is_faster()


def is_faster() -> bool:
    """Return whether a product of two matrices by oneDNN is faster than by MKL (see `regard.machine`). The
    choice affects the last digits of results, so it is stored for the machine, and in each run."""
    return choose(PRODUCTS, _products, version=f"torch {torch.__version__}") == "oneDNN"


def _products() -> dict[str, Callable[[], object]]:
    left, right = torch.ones(256, 128), torch.ones(128, 512)
    packed = torch.ops.mkldnn._reorder_linear_weight(right.t().contiguous())
    return {"MKL": lambda: torch.mm(left, right), "oneDNN": lambda: linear_by_onednn(left, packed, None)}


def linear_by_onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return outputs


def _is_wide(weight: Tensor) -> bool:
    """Return whether fast paths are enabled, and a matrix is float32 on a CPU, outside of autocast, which would
    convert it to half precision."""
    wide = weight.device.type == "cpu" and weight.dtype == torch.float32
    return wide and not torch.is_autocast_enabled("cpu") and enabled()


def _contiguous(factor: Tensor) -> Tensor:
    """Return a contiguous copy of a slice, because oneDNN takes a thousand times as long for a slice."""
    return factor if factor.t().is_contiguous() else factor.contiguous()


def _is_vector(bias: Tensor | None, columns: int) -> bool:
    """Return whether a bias is None or a contiguous vector (V,). oneDNN treats every bias as contiguous."""
    return bias is None or (bias.shape == (columns,) and bias.is_contiguous())


def _is_plain(bias: Tensor | None, *factors: Tensor) -> bool:
    """Return whether oneDNN may compute the product: plain float32 tensors on a CPU, no gradients, no transforms."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or forward_ad._current_level >= 0:
        return False
    if bias is not None:
        factors = (*factors, bias)
    return (
        all(factor.dtype == torch.float32 and factor.device.type == "cpu" for factor in factors)
        and all(type(factor) in (Tensor, nn.Parameter) for factor in factors)
        and not torch.is_autocast_enabled("cpu")
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(factor) for factor in factors)
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._get_tracing_state() is None
        and available()
    )
