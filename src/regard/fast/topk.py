"""The k best extensions of prefixes over a large vocabulary.

Replaces `torch.topk` over all tokens. Gain: 3 to 30 times as fast as `torch.topk`, and a beam search is 1.07
times as fast (32 sources, beam of 5, 12,000
  tokens, 3 + 3 layers of width 256, one thread). It is kept below the limit of 1.2, because the speed of a
  search is a bar of this package, and `token_screen` uses its chunks.
The fast path is not used for small vocabularies, or with `REGARD_REFERENCE=1`.

On a CPU, `torch.topk` sorts all tokens, which takes longer than the softmax. The maximum of a chunk of tokens
is fast to compute, so only the chunks with the largest maxima are sorted.
"""

import torch
from torch import Tensor

from regard.fast import enabled

CHUNK = 64  # Number of tokens in a chunk


def topk(values: Tensor, totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of `totals + values` for each source, in descending order, and their
    indices.

    `values` (B, K, V): log-probability of each token after each prefix. `totals` (B, K): log-probability of
    each prefix. Both results have the shape (B, count). An index is int64, at least 0 and less than K V: `index
    // V` is the prefix, `index % V` the token. `count`: 1 to K V. The choice among equal values is undefined.
    """
    prefixes, symbols = values.shape[1:]
    chunks, rest = divmod(symbols, CHUNK)
    if prefixes * chunks <= count or not enabled():
        return (totals.unsqueeze(-1) + values).flatten(1).topk(count)
    # Each result is in one of the `count` chunks with the largest maxima, or in the remainder after the chunks.
    chunked = values[..., : chunks * CHUNK].unflatten(-1, (chunks, CHUNK))
    maxima = (totals.unsqueeze(-1) + chunked.amax(-1)).flatten(1)
    best = maxima.topk(count, sorted=False).indices
    prefix = best // chunks
    begin = prefix * symbols + best % chunks * CHUNK
    indices = (begin.unsqueeze(-1) + torch.arange(CHUNK, device=values.device)).flatten(1)
    near = values.flatten(1).gather(1, indices).unflatten(1, (count, CHUNK))
    sums = (totals.gather(1, prefix).unsqueeze(-1) + near).flatten(1)
    if rest:
        all_indices = torch.arange(prefixes * symbols, device=values.device).view(prefixes, symbols)
        indices = torch.cat([indices, all_indices[:, -rest:].flatten().expand(len(indices), -1)], dim=1)
        sums = torch.cat([sums, (totals.unsqueeze(-1) + values[..., -rest:]).flatten(1)], dim=1)
    sums, order = sums.topk(count)
    return sums, indices.gather(1, order)
