"""Combinations change scores and weights across heads or steps; gates scale the context of each head.

| name          | change                                                          | source                    |
| ------------- | --------------------------------------------------------------- | ------------------------- |
| differential  | difference of two weight matrices of each head                  | Ye et al. 2024, eq. 1     |
| talking_heads | mixture of the scores of all heads, and of their weights        | Shazeer et al. 2020       |
| forgetting    | scores minus the sum of the forget gates between key and query  | Lin et al. 2025           |
| selective     | scores minus how often earlier queries of head 0 masked the key | Leviathan et al. 2025     |
| output_gate   | context times sigmoid(W x), for each dimension                  | Qiu et al. 2025           |
| head_gate     | context times sigmoid(W x), one number for each head            | Qiu et al. 2025           |

Recorded weights and interventions are those before a gate, whose x is the state of the query.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.functional import widen
from regard.attention.parts import Combination, Gate, LayerSizes, Pairs
from regard.errors import InputError

LAMBDA = 0.8
"""Initial factor of the second weight matrix in differential attention, for all layers. The paper's formula
grows from 0.2 in the first layer to 0.8; its section 3.8 reports that a constant works almost as well."""
OPEN = 4.0
"""Initial offset of the forget gates, whose initial value is then about sigmoid(4) = 0.98."""


class Differential(Combination):
    """`softmax(Q1 K1ᵀ) - λ softmax(Q2 K2ᵀ)`, with the two halves of the queries and keys of each head.

    The scale of the score is that of half a head. `λ = exp(a · b) - exp(c · d) + 0.8` with learned vectors. The
    context of each head is divided by its root mean square and multiplied by 0.2. Weights can be negative.

    >>> part = Differential(LayerSizes(width=8, memory_width=8, heads=2, head_width=4))
    >>> part.change_weights(torch.ones(1, 4, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    splits = 2
    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        if sizes.head_width % 2:
            raise InputError(f"differential: head width {sizes.head_width} is odd: choose an even width")
        half = sizes.head_width // 2
        self.query_first = nn.Parameter(0.1 * torch.randn(half))
        self.key_first = nn.Parameter(0.1 * torch.randn(half))
        self.query_second = nn.Parameter(0.1 * torch.randn(half))
        self.key_second = nn.Parameter(0.1 * torch.randn(half))
        self.norm = nn.RMSNorm(sizes.head_width, 1e-5)

    @property
    def factor(self) -> Tensor:
        first, second = self.query_first @ self.key_first, self.query_second @ self.key_second
        return first.exp() - second.exp() + LAMBDA

    def change_weights(self, weights: Tensor) -> Tensor:
        """Return the first weight matrices minus λ times the second ones."""
        first, second = weights.chunk(2, dim=1)
        # One factor for all heads of the layer, as in the paper.
        return first - self.factor.to(weights.dtype) * second

    def change_context(self, context: Tensor) -> Tensor:
        normalized: Tensor = self.norm(context)
        return normalized * (1 - LAMBDA)


class TalkingHeads(Combination):
    """Mixtures of the scores of all heads before the normalizer, and of their weights after it.

    Both matrices (H, H) are initially the identity. Rows of weights sum to 1 only at the start of training.

    >>> part = TalkingHeads(LayerSizes(width=8, memory_width=8, heads=2, head_width=4))
    >>> part.change_weights(torch.ones(1, 2, 1, 1)).flatten()
    tensor([1., 1.], grad_fn=<ViewBackward0>)
    """

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        # With the identity, the layer begins as plain attention.
        self.scores = nn.Parameter(torch.eye(sizes.heads))
        self.weights = nn.Parameter(torch.eye(sizes.heads))

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        del marks, keys, score
        return torch.einsum("bhqk,gh->bgqk", scores, self.scores.to(scores.dtype))

    def change_weights(self, weights: Tensor) -> Tensor:
        return torch.einsum("bhqk,gh->bgqk", weights, self.weights.to(weights.dtype))


class Forgetting(Combination):
    """`s_ij + Σ log f_l` over the steps l from j + 1 to i, with forget gates `f_l = sigmoid(w x_l + b)` for each
    head.

    >>> part = Forgetting(LayerSizes(width=8, memory_width=8, heads=2, head_width=4, kind="causal"))
    >>> part.marks(torch.zeros(1, 3, 8), lambda: torch.zeros(1, 2, 3, 4)).shape
    torch.Size([1, 2, 3, 1])
    """

    kinds = ("causal",)

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.memory_width, sizes.heads, bias=False)
        self.offset = nn.Parameter(torch.full((sizes.heads,), OPEN))

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the logarithms of the forget gates, (B, H, T, 1)."""
        del queries
        gates: Tensor = F.logsigmoid(widen(self.gate(states)) + self.offset)
        return gates.transpose(1, 2).unsqueeze(-1)

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        del keys, score
        assert marks is not None
        return scores + decay(marks, scores.shape[2])


class Selective(Combination):
    """`s_ij - Σ max(s⁰_lj, 0)` over the steps l from j + 1 to i - 1.

    s⁰ are the scores of head 0, before a position bias and before the factor of `scalable`. A query with a high
    score in head 0 thus masks the key for later queries. A step does not mask itself, and no step masks the
    first. The sums are the same for all heads.

    >>> part = Selective(LayerSizes(width=8, memory_width=8, heads=2, head_width=4, kind="causal"))
    >>> states = torch.ones(1, 2, 3, 4)
    >>> part.marks(torch.zeros(1, 3, 8), lambda: states).shape
    torch.Size([1, 1, 3, 4])
    """

    kinds = ("causal",)

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the queries of head 0, (B, 1, T, d)."""
        del states
        return queries()[:, :1]

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        assert marks is not None
        selection = score(marks.to(keys.dtype), keys[:, :1]).relu().tril(-1)  # a step does not mask itself
        # As in the code of the paper, the first step stays visible: it may serve as an attention sink.
        selection = torch.cat([torch.zeros_like(selection[..., :1]), selection[..., 1:]], dim=-1)
        # Without its own row: the selection of a step acts on later queries only.
        earlier = selection.cumsum(-2) - selection
        return scores - earlier[:, :, scores.shape[3] - scores.shape[2] :]


def decay(logarithms: Tensor, queries: int) -> Tensor:
    """Return the sums (B, H, Tq, Tk) of the logarithms (B, H, Tk, 1) of the gates after key j up to query i.

    Entries for keys after the query are zero; the causal mask hides these keys.

    >>> decay(torch.tensor([1.0, 2.0, 4.0]).view(1, 1, 3, 1), 1)
    tensor([[[[6., 4., 0.]]]])
    """
    # The sum between two steps is the difference of two sums from the start, so one pass serves all pairs.
    sums = logarithms.squeeze(-1).cumsum(-1)
    pairs = sums[..., sums.shape[-1] - queries :].unsqueeze(-1) - sums.unsqueeze(-2)
    return pairs.tril(sums.shape[-1] - queries)


class OutputGate(Gate):
    """A factor for each dimension of each head.

    >>> import torch
    >>> gate = OutputGate(LayerSizes(width=6, memory_width=6, heads=2, head_width=3))
    >>> gate(torch.ones(1, 2, 5, 3), torch.zeros(1, 5, 6)).unique()
    tensor([0.5000], grad_fn=<Unique2Backward0>)
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.heads * sizes.head_width, bias=False)

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d), scaled in each dimension."""
        factors: Tensor = self.gate(states).sigmoid().unflatten(-1, (context.shape[1], -1)).transpose(1, 2)
        return context * factors


class HeadGate(Gate):
    """A factor for each head.

    >>> import torch
    >>> gate = HeadGate(LayerSizes(width=6, memory_width=6, heads=2, head_width=3))
    >>> gate(torch.ones(1, 2, 5, 3), torch.zeros(1, 5, 6)).shape
    torch.Size([1, 2, 5, 3])
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.heads, bias=False)

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d), each head scaled by one number."""
        factors: Tensor = self.gate(states).sigmoid().transpose(1, 2).unsqueeze(-1)
        return context * factors
