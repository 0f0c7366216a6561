"""The largest of many values.

A CPU sorts a whole vocabulary to find a beam's few best tokens, which takes longer than its softmax. A maximum
costs next to nothing, so here only the stretches with the largest maxima are sorted.
"""

import torch
from torch import Tensor

STRETCH = 64
"""Values that are passed over together."""


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of the last dimension of values (..., V), largest first, and their places.

    As `values.topk(count)`, but for the order of equal ones: (..., count) each, places int64. `count`: 1 to V.
    """
    stretches, rest = divmod(values.shape[-1], STRETCH)
    if stretches <= count:
        return values.topk(count)
    whole = values[..., : stretches * STRETCH]
    # Each of the largest lies in one of the `count` stretches with the largest maxima, or behind all stretches.
    best = whole.unflatten(-1, (stretches, STRETCH)).amax(-1).topk(count, sorted=False).indices
    places = (best.unsqueeze(-1) * STRETCH + torch.arange(STRETCH, device=values.device)).flatten(-2)
    if rest:
        behind = torch.arange(stretches * STRETCH, values.shape[-1], device=values.device)
        places = torch.cat([places, behind.expand(*places.shape[:-1], rest)], dim=-1)
    found, order = values.gather(-1, places).topk(count)
    return found, places.gather(-1, order)
