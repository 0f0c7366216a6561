"""Most likely token without the exact logits of all tokens.

Replaces the product with the output layer and `argmax` in a greedy search without log-probabilities.
Gain: 1.6x to 2.3x for 16 to 64 states and 12,000 tokens (docs/dev/benchmarks.md, "Translation").
The fast path is not used with an output bias, for other dtypes, widths above 1,024, searches for fewer than eight
  sources and processors on which an int8 product is not faster (see `is_faster`), or with `REGARD_REFERENCE=1`.

An int8 product computes approximate logits. Its matrix has a quarter of the size of the float32 matrix, which does not
fit in the L2 cache of a processor. A bound on the error of the approximation excludes nearly all tokens (1.6 of 12,000
remain in a translation model), and the logits of the others are computed in float32. The result is therefore exact.

Error bound: let h = t (q + d) be a state with its rounded values q and |d_i| <= 1/2, and w = s (v + e) a row of
the matrix with its rounded values v. Then h w / (t s) = (q + d) w / s = q v + q e + d w / s, which differs from
q v by at most |q| |e| + sqrt(D) / 2 |w| / s.

Letters: N states of width D, V tokens.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.fast import enabled
from regard.machine import choose

CHUNK = 64  # Number of tokens in a chunk, of which only the maximum is compared first
MAX_WIDTH = 1024  # Largest width for which float32 represents sums of int8 products exactly
MIN_STATES = 8
"""Smallest number of sources for which a search gains more than the preparation of the matrix takes."""
LARGEST, LOWEST = 127, -(1 << 30)
"""Largest rounded value, and the product of excluded tokens, which is below all others."""


class TokenScreen:
    """Finds the most likely token; `weight` (V, D): matrix of the output layer, `never`: excluded tokens."""

    def __init__(self, weight: Tensor, never: Sequence[int]) -> None:
        self.weight, symbols = weight.detach(), len(weight)
        scale = (self.weight.abs().amax() / LARGEST).clamp_min(torch.finfo(weight.dtype).tiny)
        rounded = (self.weight / scale).round_()
        errors = self.weight / scale - rounded
        self.bounds = (errors.norm(dim=1).amax(), self.weight.norm(dim=1).amax() / scale * weight.shape[1] ** 0.5 / 2)
        padded = rounded.new_zeros(-(-symbols // CHUNK) * CHUNK, weight.shape[1], dtype=torch.int8)
        padded[:symbols] = rounded
        self.matrix = padded.t()
        self.excluded: list[slice | int] = [slice(symbols, None), *never]

    def __call__(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the most likely token (N, 1) after states (N, D), and its logit (N, 1); NaN for NaN."""
        scale = states.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(states.dtype).tiny) / LARGEST
        rounded = (states / scale).round_()
        products = torch._int_mm(rounded.to(torch.int8), self.matrix)
        for tokens in self.excluded:
            products[:, tokens] = LOWEST
        chunks = products.unflatten(1, (-1, CHUNK))
        maxima = chunks.amax(-1)
        # The best token and each other token may both be wrong by the bound. Rounding to integers adds 1.
        slack = 2 * (rounded.norm(dim=1, keepdim=True) * self.bounds[0] + self.bounds[1]) + 2
        threshold = (maxima.amax(1, keepdim=True) - slack.nan_to_num_()).int()  # NaN: any token, with logit NaN
        rows, near = (maxima >= threshold).nonzero(as_tuple=True)
        places, offsets = (chunks[rows, near] >= threshold[rows]).nonzero(as_tuple=True)
        rows, tokens = rows[places], near[places] * CHUNK + offsets
        logits = (states[rows] * self.weight[tokens]).sum(-1)
        best = logits.new_full((len(states),), -torch.inf).scatter_reduce_(0, rows, logits, "amax")
        equal = logits == best[rows]
        found = rows.new_zeros(len(states)).scatter_(0, rows[equal], tokens[equal])
        return found.unsqueeze(1), best.unsqueeze(1)


def make_screen(weight: Tensor, bias: Tensor | None, never: Sequence[int]) -> TokenScreen | None:
    """Return the screen of an output layer, or None if all logits are computed in less time."""
    plain = bias is None and weight.dtype == torch.float32 and weight.device.type == "cpu"
    if not (plain and weight.shape[1] <= MAX_WIDTH and enabled() and bool(weight.isfinite().all()) and is_faster()):
        return None
    return TokenScreen(weight, never)


def is_faster() -> bool:
    return choose("int8-products", _products, version=f"torch {torch.__version__}") == "int8"


def _products() -> dict[str, Callable[[], object]]:
    states, matrix = torch.ones(32, 128), torch.ones(128, 2048)
    rounded, small = states.to(torch.int8), matrix.t().to(torch.int8).contiguous().t()
    return {"float32": lambda: torch.mm(states, matrix), "int8": lambda: torch._int_mm(rounded, small)}
