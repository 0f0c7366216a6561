"""What one call of PyTorch's fused kernel was given, and its weights row by row."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.layer_record import Kind
from regard.external.capture_session import HALF, select_rows, zero_masked_rows

LEAST = -9000.0
"""What masks a score when added to it, or less: models take -inf, the least number, or -10000."""
LEAST_OF_HEADS = -50.0
"""The same where every head has its own bias: Swin adds -100 to it, and e to the -50 is nothing."""


def mask_from_bias(bias: Tensor) -> Tensor:
    """Turn what a model adds to its scores into a mask, True = may attend."""
    if bias.dtype == torch.bool:
        return bias
    return bias > (LEAST if bias.dim() < 4 or bias.shape[1] == 1 else LEAST_OF_HEADS)


def self_attention_kind(mask: Tensor | None, queries: int) -> Kind:
    """Say what self-attention has this mask (..., Tq, Tk): one that never sees the future is a decoder's."""
    if mask is None or queries < 2 or mask.shape[-2] < 2:
        return "encoder"
    return "encoder" if mask.triu(mask.shape[-1] - mask.shape[-2] + 1).any() else "decoder"


class KernelInputs:
    """What the kernel was given, with the four dimensions (B, H, T, D), whatever it had."""

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
    ) -> None:
        if enable_gqa and (groups := query.shape[-3] // key.shape[-3]) > 1:
            key, value = (each.repeat_interleave(groups, dim=-3) for each in (key, value))
        self.dropout, mask = dropout_p, attn_mask
        self.lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        self.queries, self.factor = query.shape[-2], query.shape[-1] ** -0.5 if scale is None else scale
        self.query, self.key, self.value = (_four(each, self.lead) for each in (query, key, value))
        self.causal = is_causal
        self.mask = None
        if mask is not None:
            self.mask = _four(mask.expand(*mask.shape[:-2], self.queries, self.key.shape[2]), self.lead)

    def context(self, weights: Tensor) -> Tensor:
        """Return the context (..., Tq, Dv) of weights (B, H, Tq, Tk), with the dimensions that were given."""
        found = weights.to(self.value.dtype) @ self.value
        return found.reshape(*self.lead, self.queries, self.value.shape[-1])

    @property
    def allowed(self) -> Tensor | None:
        """What may be attended, True = yes, where there is a mask."""
        return None if self.mask is None else mask_from_bias(self.mask)

    def weights(self, rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some rows, and their mask; a row with nothing to attend is zero."""
        query = self.query[:, :, rows]
        with torch.autocast(query.device.type, enabled=False):
            scores = _exact(query) @ _exact(self.key).transpose(-2, -1) * self.factor
        mask = None if self.mask is None else select_rows(self.mask, rows)
        if self.causal:
            steps = torch.arange(self.key.shape[2], device=query.device)
            mask = steps <= torch.arange(self.queries, device=query.device)[rows].unsqueeze(-1)
        if mask is None:
            return scores.softmax(-1), None
        allowed, least = (
            mask_from_bias(mask),
            torch.finfo(scores.dtype).min / 4,
        )  # so that no row is NaN, also backward
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, least)
        else:
            scores = scores + mask.to(scores.dtype).clamp(min=least)
        return zero_masked_rows(scores.softmax(-1), allowed), allowed


def _exact(states: Tensor) -> Tensor:
    """Return states of half precision in float32, in which softmax is."""
    return states.float() if states.dtype in HALF else states


def _four(states: Tensor, lead: torch.Size) -> Tensor:
    """Give states (..., T, D) the dimensions (B, H, T, D)."""
    states = states.expand(*lead, *states.shape[-2:])
    if len(lead) == 2:
        return states
    if len(lead) > 2:
        return states.reshape(-1, *states.shape[-3:])
    return states.reshape(-1, 1, *states.shape[-2:])
