"""Softmax over short rows on a CPU.

Replaces `torch.softmax` for rows of fewer than 16 numbers, by padding each row with -inf.
Gain: a greedy search takes 1.25 times as long without it (docs/dev/benchmarks.md, "Fast paths"). PyTorch processes such
rows one number at a time.
The fast path is not used on other devices, in compiled code, or with `REGARD_REFERENCE=1`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast import enabled

LANES = 16  # Number of float32 values in the widest vector register (AVX-512)


def padded_softmax(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the softmax of `scores` (..., N) over the last dimension, computed in `dtype`."""
    missing = LANES - scores.shape[-1]
    # `is_compiling` comes first, because compiled code must neither read the environment nor depend on the
    # length of a row.
    if scores.device.type != "cpu" or torch.compiler.is_compiling() or missing <= 0 or not enabled():
        return scores.softmax(-1, dtype=dtype)
    return F.pad(scores, (0, missing), value=-torch.inf).softmax(-1, dtype=dtype)[..., :-missing]
