"""Dropout (Srivastava et al. 2014) from random bytes.

PyTorch draws a random number for each value, which on a CPU takes a sixth of a Transformer's training step. One
byte is random enough: it is compared with the rate in 256ths, at a fifth of the cost
(benchmarks/kernels.py).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import check_share

BYTE = 256


class Dropout(nn.Module):
    """While training, sets a share of all values to zero, and scales the others so that the mean stays.

    `rate`: from 0 to below 1; on a CPU the nearest 256th of it that is neither 0 nor 1. The random bytes come
    from PyTorch's own generator. Raises `InputError` for another rate.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_share("dropout", rate, below=True)
        self.rate = rate

    def extra_repr(self) -> str:
        """Name the rate when printed."""
        return f"rate={self.rate}"

    def forward(self, states: Tensor) -> Tensor:
        """Return states of any shape with a share of them dropped."""
        if not self.training or not self.rate:
            return states
        if states.device.type != "cpu" or torch.compiler.is_compiling():  # it knows PyTorch's own only
            return F.dropout(states, self.rate)
        dropped = min(max(round(self.rate * BYTE), 1), BYTE - 1)
        words = torch.empty(-(-states.numel() // 8), dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)
        drawn = words.view(torch.uint8)[: states.numel()]
        # 1 from `dropped` on and 0 below, in bytes throughout: PyTorch compares bytes with a number, and widens
        # what it finds, ten times slower than it clamps them.
        kept = drawn.clamp_(dropped - 1, dropped).sub_(dropped - 1)
        return states * kept.view_as(states).to(states.dtype).mul_(BYTE / (BYTE - dropped))
