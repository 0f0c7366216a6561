"""The best extensions of some prefixes, out of a whole vocabulary for each.

A CPU sorts all of them to find a beam's few best, which takes longer than their softmax. A maximum costs next to
nothing, so here only the stretches with the largest maxima are sorted.
"""

import torch
from torch import Tensor

STRETCH = 64
"""Values that are passed over together."""


def topk(values: Tensor, totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of `totals + values` for each source, largest first, and their places.

    values (B, K, V), what each token would add to each prefix; totals (B, K). (B, count) each; places int64 in
    K V: `place // V` is the prefix and `place % V` the token. `count`: 1 to K V. Of equal ones, any are taken.
    """
    prefixes, symbols = values.shape[1:]
    stretches, rest = divmod(symbols, STRETCH)
    if prefixes * stretches <= count:
        return (totals.unsqueeze(-1) + values).flatten(1).topk(count)
    # Each of the largest lies in one of the `count` stretches with the largest maxima, or behind all stretches.
    whole = values[..., : stretches * STRETCH].unflatten(-1, (stretches, STRETCH))
    maxima = (totals.unsqueeze(-1) + whole.amax(-1)).flatten(1)
    best = maxima.topk(count, sorted=False).indices
    prefix = best // stretches
    begin = prefix * symbols + best % stretches * STRETCH
    places = (begin.unsqueeze(-1) + torch.arange(STRETCH, device=values.device)).flatten(1)
    near = values.flatten(1).gather(1, places).unflatten(1, (count, STRETCH))
    found = (totals.gather(1, prefix).unsqueeze(-1) + near).flatten(1)
    if rest:
        every = torch.arange(prefixes * symbols, device=values.device).view(prefixes, symbols)
        places = torch.cat([places, every[:, -rest:].flatten().expand(len(places), -1)], dim=1)
        found = torch.cat([found, (totals.unsqueeze(-1) + values[..., -rest:]).flatten(1)], dim=1)
    found, order = found.topk(count)
    return found, places.gather(1, order)


def argmax(values: Tensor) -> Tensor:
    """Return where the largest of each row is, (N, 1) int64, of values (N, V). Of equal ones, any is taken."""
    symbols = values.shape[1]
    stretches = symbols // STRETCH
    if stretches < 2:
        return values.argmax(1, keepdim=True)
    # The last stretch reaches back from the end, so that there is no rest.
    whole = values[:, : stretches * STRETCH].unflatten(1, (stretches, STRETCH)).amax(-1)
    last = values[:, -STRETCH:].amax(-1, keepdim=True)
    best = torch.cat([whole, last], dim=1).argmax(1, keepdim=True)
    begin = (best * STRETCH).clamp_(max=symbols - STRETCH)
    places = begin + torch.arange(STRETCH, device=values.device)
    return begin + values.gather(1, places).argmax(1, keepdim=True)
