"""Attention masks.

A mask is boolean, and True means *may be attended*, as in `scaled_dot_product_attention`.
Letters: B batch, H heads, T time (Tq of queries, Tk of keys).

These parts of a mechanism depend on positions:

| name      | query i may attend to key j if        | source                                       |
| --------- | ------------------------------------- | -------------------------------------------- |
| causal    | j <= i                                | Vaswani et al. 2017, section 3.2.3           |
| window    | |i - j| < W (window:W)                | Beltagy et al. 2020, section 3.1             |
| streaming | |i - j| < W, or j < F (streaming:W:F) | Xiao et al. 2024, section 3.2 (StreamingLLM) |

A causal layer adds its causal mask, so that j <= i always holds there.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits, public
from regard.attention.parts import LayerSizes, MaskPart
from regard.errors import InputError


@public
def length_mask(lengths: Annotated[Tensor, Limits(0, 2**31)], time: int) -> Tensor:
    """Return the padding mask (B, time) for sequences of `lengths` (B,) in steps, True before the end of each sequence.

    >>> length_mask(torch.tensor([1, 2]), 2)
    tensor([[ True, False],
            [ True,  True]])
    """
    if lengths.is_floating_point():
        raise InputError(f"lengths are of dtype {lengths.dtype}: give whole numbers")
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(-1)


@public
def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return the mask (queries, keys) in which each query attends to the key at its own step and to earlier keys.

    The queries are the last steps of the keys, so that one new query may attend to all cached keys.

    >>> causal_mask(1, 3)
    tensor([[True, True, True]])
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def add_causal(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor:
    """Combine a mask with a causal mask into a mask (..., queries, keys). None means that all keys may be attended."""
    past = causal_mask(queries, keys, device)
    return past if mask is None else mask & past


@public
def as_weights_mask(mask: Tensor, batch: int, queries: int, keys: int) -> Tensor:
    """Return a mask with the four dimensions of the weights (B, H, Tq, Tk).

    `mask`: (B, Tk), (Tq, Tk), (B, Tq, Tk) or (B, H, Tq, Tk), with size 1 for B, H or Tq if the mask does not
    vary over this dimension. Raises `InputError` for other shapes, for a mask that is not boolean, and for an
    ambiguous mask of two dimensions (B equals Tq).

    >>> as_weights_mask(length_mask(torch.tensor([1, 2]), 3), batch=2, queries=4, keys=3).shape
    torch.Size([2, 1, 1, 3])
    """
    if mask.dtype != torch.bool:
        raise InputError(f"mask is of dtype {mask.dtype}: give torch.bool, where True means may be attended")
    shape, rest = tuple(mask.shape), mask.dim() - 1
    by_batch = shape == (batch, keys)
    # An export with dynamic sizes cannot compare two sizes. In an export, a mask of two dimensions means (B, Tk).
    by_query = not (by_batch and isinstance(shape[0], torch.SymInt)) and shape == (queries, keys)
    if by_batch and by_query and batch > 1:
        raise InputError(
            f"mask {shape} could be (B, Tk) or (Tq, Tk), which are equal here: "
            f"give it as {(batch, 1, keys)} or {(1, queries, keys)}"
        )
    if by_batch:
        return mask[:, None, None, :]
    if by_query:
        return mask[None, None]
    fits = rest in (2, 3) and shape[-1] == keys and shape[-2] in (queries, 1) and shape[0] in (batch, 1)
    if not fits:
        raise InputError(
            f"mask {shape} does not fit weights of B {batch}, Tq {queries}, Tk {keys}: "
            f"give (B, Tk), (Tq, Tk), (B, Tq, Tk) or (B, H, Tq, Tk)"
        )
    return mask.unsqueeze(1) if rest == 2 else mask


def mask_rows(
    mask: Tensor | None, rows: Sequence[int], queries: int, keys: int, *, causal: bool, device: torch.device
) -> Tensor | None:
    """Return the mask of the selected query rows, without building the mask of the other rows.

    `mask`: mask of all `queries` and `keys`, broadcastable to (B, H, Tq, Tk), or None. `causal` also masks later keys.
    """
    if mask is not None and mask.shape[2] > 1:
        mask = mask[:, :, list(rows)]
    if causal:
        last_key = torch.tensor(list(rows), device=device) + keys - queries
        past = torch.arange(keys, device=device) <= last_key.unsqueeze(-1)
        mask = past if mask is None else mask & past
    return mask


class Causal(MaskPart):
    """A step attends to itself and to earlier steps."""

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        return keys <= queries


class Window(MaskPart):
    """A step attends to steps at a distance below W; W counts the step itself."""

    def __init__(self, sizes: LayerSizes, width: Annotated[int, Limits(1, 2**30)] = 64) -> None:
        super().__init__(sizes)
        self.width = width

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (queries - keys).abs() < self.width


class Streaming(Window):
    """A window of W steps, and the first F steps, which every query may attend to (attention sinks).

    StreamingLLM counts positions inside its cache; here each key keeps its position.
    """

    def __init__(self, sizes: LayerSizes, width: int = 64, first: Annotated[int, Limits(1, 2**30)] = 4) -> None:
        super().__init__(sizes, width)
        self.first = first

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().allowed(queries, keys) | (keys < self.first)
