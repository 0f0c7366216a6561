"""Dropout (Srivastava et al. 2014) from random bytes.

PyTorch draws a random number for each value, which takes a sixth of the time of a Transformer's training step
on a CPU. This module draws one random byte for each value and compares the byte with 256 times the rate, which
is 7 times faster (docs/dev/benchmarks.md, "Parts of a translation step").
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import check_share

BYTE = 256


class Dropout(nn.Module):
    """Set a random fraction of the values to zero during training, and scale the remaining values to keep the
    mean.

    `rate`: at least 0 and less than 1. On a CPU, a nonzero rate is rounded to the nearest multiple of 1/256
    that is above 0 and below 1. The random bytes come from PyTorch's generator. Raises `InputError` for a rate
    out of range.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_share("dropout", rate, below=True)
        self.rate = rate

    def extra_repr(self) -> str:
        """Return the rate as text for `repr`."""
        return f"rate={self.rate}"

    def forward(self, states: Tensor) -> Tensor:
        """Return states of any shape with a random fraction of the values set to zero."""
        if not self.training or not self.rate:
            return states
        if states.device.type != "cpu" or torch.compiler.is_compiling():  # compilers fuse PyTorch's dropout only
            return F.dropout(states, self.rate)
        dropped = min(max(round(self.rate * BYTE), 1), BYTE - 1)
        words = torch.empty(-(-states.numel() // 8), dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)
        random_bytes = words.view(torch.uint8)[: states.numel()]
        # The result is 1 for bytes of at least `dropped`, and 0 for smaller bytes. Clamping keeps the dtype
        # uint8. A comparison would convert the bytes to a wider dtype and take ten times as long.
        mask = random_bytes.clamp_(dropped - 1, dropped).sub_(dropped - 1)
        return states * mask.view_as(states).to(states.dtype).mul_(BYTE / (BYTE - dropped))
