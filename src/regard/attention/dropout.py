"""Dropout (Srivastava et al. 2014) from random bytes.

PyTorch draws a random number for each value, which takes a sixth of the time of a Transformer's training step
on a CPU. This module draws one random byte for each value and compares the byte with 256 times the rate, which
is 7 times faster (docs/dev/benchmarks.md, "Parts of a translation step").
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import Limits, public

BYTE = 256


@public
class Dropout(nn.Module):
    """Set a random fraction of the values to zero during training, and scale the remaining values to keep the
    mean.

    `rate`: at least 0 and less than 1. On a CPU, a nonzero rate is rounded to the nearest multiple of 1/256
    that is above 0 and below 1. The random bytes come from PyTorch's generator. Raises `InputError` for a rate
    out of range.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, rate: Annotated[float, Limits(0, 1, "high")]) -> None:
        super().__init__()
        self.rate = rate

    def extra_repr(self) -> str:
        """Return the rate as text for `repr`."""
        return f"rate={self.rate}"

    def forward(self, states: Tensor) -> Tensor:
        """Return states of any shape with a random fraction of the values set to zero."""
        if not self.training or not self.rate:
            return states
        if states.device.type != "cpu":
            return F.dropout(states, self.rate)
        dropped = min(max(round(self.rate * BYTE), 1), BYTE - 1)
        mask = torch.empty(-(-states.numel() // 8) * 8, dtype=torch.uint8)
        draw = _draw_when_compiled if torch.compiler.is_compiling() else _draw_mask
        draw(mask, dropped)
        mask = mask[: states.numel()].view_as(states)
        return states * mask.to(states.dtype).mul_(BYTE / (BYTE - dropped))


def _draw_mask(mask: Tensor, dropped: int) -> None:
    """Set each value of a mask to 0 with a probability of `dropped` / 256, and otherwise to 1.

    `mask`: (N,) uint8; N is divisible by 8.
    """
    mask.view(torch.int64).random_(torch.iinfo(torch.int64).min, None)
    # The result is 1 for bytes of at least `dropped`, and 0 for smaller bytes. Clamping keeps the dtype uint8. A
    # comparison would convert the bytes to a wider dtype and take ten times as long.
    mask.clamp_(dropped - 1, dropped).sub_(dropped - 1)


# A compiler calls this operation without looking into it: its own random numbers take most of the time of a
# compiled step on a CPU. It merges equal operations, but not operations that write to different tensors.
_draw_when_compiled = torch.library.custom_op("regard::draw_mask", _draw_mask, mutates_args=("mask",))
