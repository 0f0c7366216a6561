"""Normalizers: weights from scores.

| name        | weights of a row of scores s                 | row sums to | source                           |
| ----------- | -------------------------------------------- | ----------- | -------------------------------- |
| softmax     | exp(s) / Σ exp(s)                            | 1           | Vaswani et al. 2017, equation 1  |
| softmax_one | exp(s) / (1 + Σ exp(s))                      | less than 1 | Miller 2023, a blog post         |
| sink        | exp(s) / (exp(a) + Σ exp(s)), a learned      | less than 1 | OpenAI 2025, gpt-oss model card  |
| sigmoid     | sigmoid(s - log n), n keys may be attended   | any         | Ramapuram et al. 2024            |
| sparsemax   | projection of s onto the simplex, many zeros | 1           | Martins and Astudillo 2016       |
| entmax      | 1.5-entmax: max(s / 2 - t, 0)², some zeros   | 1           | Peters et al. 2019               |
| topk        | softmax over the k largest scores (topk:8)   | 1           | Gupta et al. 2021                |

All compute in float32 or float64, give masked keys the weight zero, and give a fully masked row zeros.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from regard.arguments import Limits
from regard.attention.functional import attention_weights, key_counts, widen
from regard.attention.parts import LayerSizes, Normalizer

MASKED = -1e9
"""Score of a masked key relative to the largest score of the row."""


class Softmax(Normalizer):
    """Softmax, the default. A layer has no part for it (`Mechanism.for_layer`)."""

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return attention_weights(scores, mask)


class SoftmaxOne(Normalizer):
    """`exp(s) / (1 + Σ exp(s))`: a row may attend to nothing."""

    normalized = False

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weights without that of the added key, whose score is 0."""
        return _softmax_with_sink(scores, mask, scores.new_zeros(1, 1, 1))


class Sink(Normalizer):
    """Softmax with an added key whose score is learned for each head and whose value is zero."""

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(sizes.heads))

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weights without that of the sink."""
        return _softmax_with_sink(scores, mask, self.sink.view(-1, 1, 1))


class Sigmoid(Normalizer):
    """`sigmoid(s - log n)`: keys do not compete. n is the number of keys that the query may attend to, where the
    paper has the length of the sequence.
    """

    normalized = False

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        wide = widen(scores)
        # The offset keeps the sum of a row near 1 at the start of training, for any number of keys.
        weights = (wide - key_counts(wide, mask).log()).sigmoid()
        return (weights if mask is None else weights * mask).to(scores.dtype)


class Sparsemax(Normalizer):
    """Euclidean projection of the scores onto the simplex.

    The threshold t is found by sorting; `max(s - t, 0)` sums to 1.
    """

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        shifted = shift_scores(scores, mask)
        with torch.no_grad():
            ranked = shifted.sort(-1, descending=True).values
            rank = torch.arange(1, ranked.shape[-1] + 1, device=scores.device)
            size = (1 + rank * ranked > ranked.cumsum(-1)).sum(-1, keepdim=True)
            support = shifted >= ranked.gather(-1, size - 1)
            size = support.sum(-1, keepdim=True)  # larger than before if several scores are equal
        # The gradient of this formula on a fixed support is the gradient of the projection.
        threshold = ((shifted * support).sum(-1, keepdim=True) - 1) / size
        return finish((shifted - threshold).clamp(min=0) * support, scores, mask)


class Entmax(Normalizer):
    """1.5-entmax, between softmax and sparsemax: `max(s / 2 - t, 0)²`, where t makes the sum 1."""

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        half = shift_scores(scores, mask) / 2
        with torch.no_grad():
            ranked = half.sort(-1, descending=True).values
            rank = torch.arange(1, ranked.shape[-1] + 1, device=scores.device)
            mean = ranked.cumsum(-1) / rank
            spread = (ranked**2).cumsum(-1) - rank * mean**2
            # The closed form for each possible number of keys with a weight (Peters et al. 2019, algorithm 2).
            thresholds = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
            size = (thresholds <= ranked).sum(-1, keepdim=True)
            support = half >= ranked.gather(-1, size - 1)
            size = support.sum(-1, keepdim=True)
        average = (half * support).sum(-1, keepdim=True) / size
        spread = ((half - average) ** 2 * support).sum(-1, keepdim=True)
        threshold = average - ((1 - spread) / size).clamp(min=torch.finfo(half.dtype).tiny).sqrt()
        return finish((half - threshold).clamp(min=0) ** 2 * support, scores, mask)


class TopK(Normalizer):
    """Softmax over the k largest scores of each row. Keys whose score equals the k-th largest are all kept."""

    def __init__(self, sizes: LayerSizes, count: Annotated[int, Limits(1, 2**20)] = 8) -> None:
        super().__init__(sizes)
        self.count = count

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the softmax over the largest scores that are not masked."""
        # `topk` raises an error if there are fewer keys than it returns.
        if self.count >= scores.shape[-1]:
            return attention_weights(scores, mask)
        allowed = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        # A threshold instead of the indices treats keys with equal scores alike, in whatever order they come.
        least = allowed.detach().topk(self.count, dim=-1).values[..., -1:]
        largest = scores >= least
        return attention_weights(scores, largest if mask is None else largest & mask)


def shift_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores minus the largest score of the row, in float32 or float64, and `MASKED` for masked keys."""
    wide = widen(scores)
    if mask is None:
        return wide - wide.detach().amax(-1, keepdim=True)
    # In a fully masked row, no key counts as masked, because the projections need at least one key.
    mask = mask | ~mask.any(-1, keepdim=True)
    largest = wide.detach().masked_fill(~mask, torch.finfo(wide.dtype).min / 2).amax(-1, keepdim=True)
    return (wide - largest).masked_fill(~mask, MASKED)


def finish(weights: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    return (weights if mask is None else weights * mask).to(scores.dtype)


def _softmax_with_sink(scores: Tensor, mask: Tensor | None, sink: Tensor) -> Tensor:
    """Return the weights (B, H, Tq, Tk) of a softmax over the keys and a sink with a score (H, 1, 1)."""
    column = sink.to(scores.dtype).expand(*scores.shape[:-1], 1)
    if mask is not None:
        mask = torch.cat([mask, mask.new_ones(1).expand(*mask.shape[:-1], 1)], dim=-1)
    # The value of the sink is zero, so its weight is dropped after the softmax.
    return attention_weights(torch.cat([scores, column], dim=-1), mask)[..., :-1].contiguous()
