"""Dropout (Srivastava et al. 2014) from random bytes.

PyTorch draws a random number for each value, which takes a sixth of a Transformer's training step on a CPU. This
module draws one byte for each value and compares it with the rate in 256ths, 7 times faster
(docs/dev/benchmarks.md, "Parts of a translation step").
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import check_share

BYTE = 256


class Dropout(nn.Module):
    """Sets a share of all values to zero while training, and scales the others to keep the mean.

    `rate`: from 0 to below 1; on a CPU the nearest 256th of it that is neither 0 nor 1. The random bytes come
    from PyTorch's generator. Raises `InputError` for another rate.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_share("dropout", rate, below=True)
        self.rate = rate

    def extra_repr(self) -> str:
        """Return the rate for `repr`."""
        return f"rate={self.rate}"

    def forward(self, states: Tensor) -> Tensor:
        """Return states of any shape with a share of their values set to zero."""
        if not self.training or not self.rate:
            return states
        if states.device.type != "cpu" or torch.compiler.is_compiling():  # which fuses PyTorch's dropout only
            return F.dropout(states, self.rate)
        dropped = min(max(round(self.rate * BYTE), 1), BYTE - 1)
        words = torch.empty(-(-states.numel() // 8), dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)
        random_bytes = words.view(torch.uint8)[: states.numel()]
        # The result is 1 for bytes from `dropped` on, and 0 for smaller bytes. Clamping keeps the type uint8; a
        # comparison converts the bytes to a wider type and takes ten times as long.
        mask = random_bytes.clamp_(dropped - 1, dropped).sub_(dropped - 1)
        return states * mask.view_as(states).to(states.dtype).mul_(BYTE / (BYTE - dropped))
