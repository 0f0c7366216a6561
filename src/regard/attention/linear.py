"""The linear family: attention as a recurrence with a state of fixed size, shown by the weights it implies.

| name         | recurrence                                     | source                                |
| ------------ | ---------------------------------------------- | ------------------------------------- |
| linear       | S += φ(k) vᵀ, z += φ(k), o = φ(q) S / (φ(q) z) | Katharopoulos et al. 2020             |
| gated_linear | S = a S + k vᵀ, o = norm(q S)                  | Yang et al. 2024; Dao and Gu 2024     |
| delta_rule   | S = S - b k (kᵀ S) + b k vᵀ, o = norm(q S)     | Schlag et al. 2021; Yang et al. 2024b |

The gates a and b are sigmoids of the state of the step. The gate of `gated_linear` is one number for each head
and step, as in Mamba-2 (Dao and Gu 2024); Yang et al. 2024 (gated linear attention) have one for each dimension.
Yang et al. 2024b is the paper on DeltaNet. `norm` divides each head by its root mean square.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.combinations import OPEN, decay
from regard.attention.functional import widen
from regard.attention.parts import LayerSizes, LinearAttention


class Linear(LinearAttention):
    """`φ(q) · φ(k) / Σ φ(q) · φ(k)` with `φ(x) = elu(x) + 1`. Each row sums to 1.

    >>> part = Linear(LayerSizes(width=4, memory_width=4, heads=1, head_width=4))
    >>> part(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 2, 4), None, None)
    tensor([[[[0.5000, 0.5000]]]])
    """

    kinds = ("causal", "self", "cross")

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None) -> Tensor:
        del marks
        # The recurrence needs no pairs of steps; recorded weights and interventions do.
        products = _positive(query) @ _positive(keys).transpose(-2, -1)
        products = products if mask is None else products * mask
        total = products.sum(-1, keepdim=True)
        return products / total.masked_fill(total == 0, 1.0)  # a fully masked row is zero


def _positive(states: Tensor) -> Tensor:
    """Return `elu(x) + 1`, without the rounding of a sum with 1 below zero."""
    return torch.where(states > 0, states + 1, states.clamp(max=0).exp())


class GatedLinear(LinearAttention):
    """`q_i · k_j / √d` times the product of the gates of the steps from j + 1 to i. Weights can be negative.

    >>> part = GatedLinear(LayerSizes(width=4, memory_width=4, heads=1, head_width=4))
    >>> marks = part.marks(torch.zeros(1, 2, 4), lambda: torch.zeros(1, 1, 2, 4))
    >>> part(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 2, 4), None, marks)[..., 1].item()
    2.0
    """

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.memory_width, sizes.heads, bias=False)
        self.offset = nn.Parameter(torch.full((sizes.heads,), OPEN))
        self.norm = nn.RMSNorm(sizes.head_width, 1e-5)

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the logarithms of the gates, (B, H, T, 1)."""
        del queries
        # The logarithm of a sigmoid stays finite where the product of many gates would be 0.
        gates: Tensor = F.logsigmoid(widen(self.gate(states)) + self.offset)
        return gates.transpose(1, 2).unsqueeze(-1)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None) -> Tensor:
        assert marks is not None
        products = query @ keys.transpose(-2, -1) * query.shape[-1] ** -0.5
        weights: Tensor = products * decay(marks, query.shape[2]).to(products.dtype).exp()
        return weights if mask is None else weights * mask

    def change_context(self, context: Tensor) -> Tensor:
        normalized: Tensor = self.norm(context)
        return normalized


class DeltaRule(LinearAttention):
    """Each step first removes what the state returns for its key, and then adds its value (with rate b).

    Queries and keys are `silu(x) / |silu(x)|`. The implied weights of all steps are `(Q Kᵀ ∘ M) T` with
    the causal mask M and `T = (I + tril(B K Kᵀ, -1))⁻¹ B`, where B is the diagonal matrix of the rates
    (Yang et al. 2024b). Weights can be negative.

    >>> part = DeltaRule(LayerSizes(width=4, memory_width=4, heads=1, head_width=4))
    >>> marks = part.marks(torch.zeros(1, 1, 4), lambda: torch.zeros(1, 1, 1, 4))
    >>> round(part(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), None, marks).item(), 4)
    0.5
    """

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.rate = nn.Linear(sizes.memory_width, sizes.heads, bias=False)
        self.norm = nn.RMSNorm(sizes.head_width, 1e-5)

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the rates b, (B, H, T, 1)."""
        del queries
        rates: Tensor = widen(self.rate(states)).sigmoid()
        return rates.transpose(1, 2).unsqueeze(-1)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None) -> Tensor:
        """Return the implied weights. Masked keys have the rate 0 if the mask is the same for all queries."""
        assert marks is not None
        query, keys = F.normalize(F.silu(query), dim=-1), F.normalize(F.silu(keys), dim=-1)
        rates, queries, steps = marks.to(query.dtype), query.shape[2], keys.shape[2]
        # A padded key must also leave the state unchanged for later queries, so it has the rate 0.
        if mask is not None:
            rates = rates * mask.any(-2).unsqueeze(-1)
        with torch.autocast(query.device.type, enabled=False):  # no triangular solver exists in half precision
            triangle = (rates * keys @ keys.transpose(-2, -1)).tril(-1)
            products = (query @ keys.transpose(-2, -1)).tril(steps - queries)
        # Solving for all steps at once replaces a loop over steps (Yang et al. 2024b).
        weights: Tensor = torch.linalg.solve_triangular(triangle, products, upper=False, left=False, unitriangular=True)
        weights = weights * rates.transpose(-2, -1)
        return weights if mask is None else weights * mask

    def change_context(self, context: Tensor) -> Tensor:
        normalized: Tensor = self.norm(context)
        return normalized
