"""Positions that add a number to each score, so that embeddings carry no positions.

| name  | bias of query i and key j                             | source                       |
| ----- | ----------------------------------------------------- | ---------------------------- |
| alibi | -m |i - j|, with a fixed slope m for each head        | Press et al. 2022, section 3 |
| t5    | a learned number for each head and range of distances | Raffel et al. 2020           |
"""

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from regard.arguments import Limits
from regard.attention.parts import LayerSizes, PositionBias
from regard.errors import check_range


class Alibi(PositionBias):
    """`-m |i - j|`. The slopes of H heads are `2^(-8 / H)`, `2^(-16 / H)`, ..., `2^-8`.

    This is the formula of the paper for every H. The authors' code, and BLOOM, use other slopes if H is not a
    power of two. A layer that is not causal also counts the distance to later keys, which the paper leaves out.

    >>> sizes = LayerSizes(width=4, memory_width=4, heads=1, head_width=4)
    >>> Alibi(sizes)(torch.tensor([[2]]), torch.tensor([[0, 1, 2]])) * 2**8
    tensor([[[-2., -1., -0.]]], dtype=torch.float64)
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.heads = sizes.heads

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (H, Tq, Tk), float64, because half precision rounds distances above 256."""
        heads = torch.arange(1, self.heads + 1, device=queries.device, dtype=torch.float64)
        slopes = 2.0 ** (heads * (-8 / self.heads))
        return -slopes.view(-1, 1, 1) * (queries - keys).abs()


class T5Bias(PositionBias):
    """A learned bias for each head and bucket of distances.

    Half of the buckets are for single distances; the other half covers distances up to `farthest` in steps that
    grow like the logarithm. Farther keys share the last bucket. In a layer that is not causal, half of the
    buckets are for later keys. T5 shares the biases between layers; here each layer has its own.

    >>> sizes = LayerSizes(width=4, memory_width=4, heads=2, head_width=2, kind="causal")
    >>> T5Bias(sizes)(torch.tensor([[2]]), torch.tensor([[0, 1, 2]])).shape
    torch.Size([2, 1, 3])
    """

    def __init__(
        self, sizes: LayerSizes, buckets: Annotated[int, Limits(4, 1024)] = 32, farthest: int = 128
    ) -> None:
        super().__init__()
        check_range("farthest", farthest, buckets, 2**20)
        self.buckets, self.farthest, self.causal = buckets, farthest, sizes.kind == "causal"
        self.bias = nn.Parameter(torch.zeros(sizes.heads, buckets))

    def bucket(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance i - j, int64 of the same shape."""
        if self.causal:
            return self._bucket(distances.clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(distances.abs(), half) + (distances < 0) * half

    def _bucket(self, distances: Tensor, count: int) -> Tensor:
        single = count // 2
        scale = (count - single) / math.log(self.farthest / single)
        far = single + (torch.log(distances.clamp(min=1) / single) * scale).long()
        return torch.where(distances < single, distances, far.clamp(max=count - 1))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (H, Tq, Tk)."""
        return self.bias[:, self.bucket(queries - keys)]
