"""The slots of an attention mechanism, and the base class of the parts that fill them.

    queries, keys, values = projections of the states     slot sharing (and rotary positions)
    scores  = score(queries, keys) + position bias        slots score, position
    scores  = change of the scores                        slot combination
    weights = normalizer(scores, mask)                    slots normalizer, mask
    weights = change of the weights                       slot combination
    context = gate(weights values)                        slot gate

A part of the slot `linear` replaces score and normalizer. `regard.attention.mechanism` has the table of all
parts. A custom part is a subclass of the base class of its slot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.functional import widen
from regard.errors import InputError, check_range

AttentionKind = Literal["causal", "self", "cross"]
"""Kind of a layer: each step attends to itself and to earlier steps (causal), to all steps (self), or to the
steps of another sequence (cross)."""
Pairs = Callable[[Tensor, Tensor], Tensor]
"""Maps queries (B, H, Tq, d) and keys (B, H, Tk, any) to scores (B, H, Tq, Tk)."""
Slot = Literal["score", "position", "mask", "normalizer", "gate", "combination", "sharing", "linear"]
"""Place of a part in the equations of attention."""


@public
@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """Sizes of an attention layer, for the constructors of its parts."""

    width: int
    """Width of the states from which queries are projected."""
    memory_width: int
    """Width of the states from which keys and values are projected."""
    heads: int
    """Number of heads."""
    head_width: int
    """Width of each head."""
    kind: AttentionKind = "self"
    """Kind of the layer."""


@public
class Part(nn.Module):
    """Base class of all parts except scores and positions.

    The constructor takes the sizes of the layer, and the numbers that follow the name in `name:number:number`.
    """

    def __init__(self, sizes: LayerSizes | None = None) -> None:
        super().__init__()
        del sizes  # many parts have neither parameters nor sizes

    slot: ClassVar[Slot]
    """Slot of the part."""
    kinds: ClassVar[tuple[AttentionKind, ...]] = ("causal", "self", "cross")
    """Kinds of layers in which the part has a meaning."""
    normalized: ClassVar[bool] = True
    """Whether each row of weights sums to 1 (to 0 if the row is fully masked)."""


@public
class MaskPart(Part):
    """Base class of masks that depend on the positions of queries and keys."""

    slot = "mask"
    kinds: ClassVar[tuple[AttentionKind, ...]] = ("causal", "self")

    def allowed(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return a mask (Tq, Tk), True = may be attended, for positions (Tq, 1) and (1, Tk) int64."""
        raise NotImplementedError


@public
class PositionBias(Part):
    """Base class of positions that add a number to each score."""

    slot = "position"
    kinds: ClassVar[tuple[AttentionKind, ...]] = ("causal", "self")

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return biases (H, Tq, Tk) for positions (Tq, 1) and (1, Tk) int64."""
        raise NotImplementedError


@public
class Normalizer(Part):
    """Base class of functions from scores to weights."""

    slot = "normalizer"

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return weights (B, H, Tq, Tk), zero for masked keys, with the dtype of the scores.

        `mask` broadcasts to the scores, True = may be attended. A fully masked row is zero.
        """
        raise NotImplementedError


@public
class Gate(Part):
    """Base class of gates, which scale the context of each head."""

    slot = "gate"

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        """Return the gated context (B, H, Tq, d) for the states (B, Tq, D) of the queries."""
        raise NotImplementedError


class Marked(Part):
    """Base class of parts that store numbers for each key in the cache, the marks of the key."""

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor | None:
        """Return the marks of each step, (B, any, T, any), or None if the part has no marks.

        `states` (B, T, D) are the inputs of the layer. `queries` returns the projected queries (B, H, T, d).
        """
        return None

    def change_context(self, context: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d) after a change."""
        return context


@public
class Combination(Marked):
    """Base class of parts that combine the scores or weights of several heads or steps."""

    slot = "combination"
    splits: ClassVar[int] = 1
    """Number of score matrices for each head. The queries and keys of a head are split into this number of parts."""

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        """Return changed scores (B, H, Tq, Tk). `keys` are (B, H, Tk, any), `score` is that of the layer."""
        return scores

    def change_weights(self, weights: Tensor) -> Tensor:
        """Return the weights (B, H, Tq, Tk) for the weights (B, splits H, Tq, Tk)."""
        return weights


@public
class Sharing(Part):
    """Base class of parts that say how keys and values are projected."""

    slot = "sharing"
    groups: int
    """Number of heads of keys and values."""
    key_width: int
    """Width of the input of the projections of keys and values."""
    changes_keys: ClassVar[bool] = False
    """Whether the part changes the keys of all steps. The cache then stores keys before the change."""
    caches_inputs: ClassVar[bool] = False
    """Whether the cache stores the inputs of the projections, which are projected again at each step."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes)
        self.groups, self.key_width = sizes.heads, sizes.memory_width

    def forward(self, states: Tensor) -> Tensor:
        """Return the input (B, T, key_width) of the projections of keys and values for states (B, T, Dm)."""
        return states

    def change_keys(self, keys: Tensor) -> Tensor:
        """Return changed keys (B, G, Tk, d) of all steps, before `Score.prepare`."""
        return keys


@public
class LinearAttention(Marked):
    """Base class of the linear family, whose recurrences have a state of fixed size.

    The layer computes the weights that the recurrence implies for all pairs, so that they can be recorded and
    changed. The time is therefore quadratic in the number of steps, and the cache grows with the steps.
    """

    slot = "linear"
    kinds: ClassVar[tuple[AttentionKind, ...]] = ("causal",)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None) -> Tensor:
        """Return weights (B, H, Tq, Tk) of queries (B, H, Tq, d) and keys (B, H, Tk, d)."""
        raise NotImplementedError


def positions_of(queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the positions (Tq, 1) of queries and (1, Tk) of keys. The queries are the last steps of the keys."""
    steps = torch.arange(keys, device=device)
    return steps[keys - queries :].unsqueeze(1), steps.unsqueeze(0)


LAMBDA = 0.8
"""Initial factor of the second weight matrix in differential attention, for all layers. The paper's formula
grows from 0.2 in the first layer to 0.8; its section 3.8 reports that a constant works almost as well."""


# Combinations change scores and weights across heads or steps; gates scale the context of each head.
#
# | name          | change                                                          | source                    |
# | ------------- | --------------------------------------------------------------- | ------------------------- |
# | differential  | difference of two weight matrices of each head                  | Ye et al. 2024, eq. 1     |
# | talking_heads | mixture of the scores of all heads, and of their weights        | Shazeer et al. 2020       |
# | forgetting    | scores minus the sum of the forget gates between key and query  | Lin et al. 2025           |
# | selective     | scores minus how often earlier queries of head 0 masked the key | Leviathan et al. 2025     |
# | output_gate   | context times sigmoid(W x), for each dimension                  | Qiu et al. 2025           |
# | head_gate     | context times sigmoid(W x), one number for each head            | Qiu et al. 2025           |
#
# Recorded weights and interventions are those before a gate, whose x is the state of the query.


OPEN = 4.0
"""Initial offset of the forget gates, whose initial value is then about sigmoid(4) = 0.98."""


class Differential(Combination):
    """`softmax(Q1 K1ᵀ) - λ softmax(Q2 K2ᵀ)`, with the two halves of the queries and keys of each head.

    The scale of the score is that of half a head. `λ = exp(a · b) - exp(c · d) + 0.8` with learned vectors. The
    context of each head is divided by its root mean square and multiplied by 0.2. Weights can be negative.
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
    """

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        # With the identity, the layer begins as plain attention.
        self.scores = nn.Parameter(torch.eye(sizes.heads))
        self.weights = nn.Parameter(torch.eye(sizes.heads))

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        return torch.einsum("bhqk,gh->bgqk", scores, self.scores.to(scores.dtype))

    def change_weights(self, weights: Tensor) -> Tensor:
        return torch.einsum("bhqk,gh->bgqk", weights, self.weights.to(weights.dtype))


class ForgetGates(Part):
    """Part with a forget gate for each head and step: `f_l = sigmoid(w x_l + b)`."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.memory_width, sizes.heads, bias=False)
        self.offset = nn.Parameter(torch.full((sizes.heads,), OPEN))

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the logarithms of the gates, (B, H, T, 1)."""
        # The logarithm of a sigmoid stays finite where the product of many gates would be 0.
        gates: Tensor = F.logsigmoid(widen(self.gate(states)) + self.offset)
        return gates.transpose(1, 2).unsqueeze(-1)


class Forgetting(ForgetGates, Combination):
    """`s_ij + Σ log f_l` over the steps l from j + 1 to i."""

    kinds = ("causal",)

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        assert marks is not None
        return scores + decay(marks, scores.shape[2])


class Selective(Combination):
    """`s_ij - Σ max(s⁰_lj, 0)` over the steps l from j + 1 to i - 1.

    s⁰ are the scores of head 0, before a position bias and before the factor of `scalable`. A query with a high
    score in head 0 thus masks the key for later queries. A step does not mask itself, and no step masks the
    first. The sums are the same for all heads.
    """

    kinds = ("causal",)

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the queries of head 0, (B, 1, T, d)."""
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
    """A factor for each dimension of each head."""

    by_dimension: ClassVar[bool] = True

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.heads * (sizes.head_width if self.by_dimension else 1), bias=False)

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        factors: Tensor = self.gate(states).sigmoid().unflatten(-1, (context.shape[1], -1)).transpose(1, 2)
        return context * factors


class HeadGate(OutputGate):
    """A factor for each head."""

    by_dimension = False


# The linear family: attention as a recurrence with a state of fixed size, shown by the weights it implies.
#
# | name         | recurrence                                     | source                                |
# | ------------ | ---------------------------------------------- | ------------------------------------- |
# | linear       | S += φ(k) vᵀ, z += φ(k), o = φ(q) S / (φ(q) z) | Katharopoulos et al. 2020             |
# | gated_linear | S = a S + k vᵀ, o = norm(q S)                  | Yang et al. 2024; Dao and Gu 2024     |
# | delta_rule   | S = S - b k (kᵀ S) + b k vᵀ, o = norm(q S)     | Schlag et al. 2021; Yang et al. 2024b |
#
# The gates a and b are sigmoids of the state of the step. The gate of `gated_linear` is one number for each head
# and step, as in Mamba-2 (Dao and Gu 2024); Yang et al. 2024 (gated linear attention) have one for each dimension.
# Yang et al. 2024b is the paper on DeltaNet. `norm` divides each head by its root mean square.


class Linear(LinearAttention):
    """`φ(q) · φ(k) / Σ φ(q) · φ(k)` with `φ(x) = elu(x) + 1`. Each row sums to 1."""

    kinds = ("causal", "self", "cross")

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None) -> Tensor:
        # The recurrence needs no pairs of steps; recorded weights and interventions do.
        products = _positive(query) @ _positive(keys).transpose(-2, -1)
        products = products if mask is None else products * mask
        total = products.sum(-1, keepdim=True)
        return products / total.masked_fill(total == 0, 1.0)  # a fully masked row is zero


def _positive(states: Tensor) -> Tensor:
    """Return `elu(x) + 1`, without the rounding of a sum with 1 below zero."""
    return torch.where(states > 0, states + 1, states.clamp(max=0).exp())


class GatedLinear(ForgetGates, LinearAttention):
    """`q_i · k_j / √d` times the product of the gates of the steps from j + 1 to i. Weights can be negative."""

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes)
        self.norm = nn.RMSNorm(sizes.head_width, 1e-5)

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
    """

    normalized = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.rate = nn.Linear(sizes.memory_width, sizes.heads, bias=False)
        self.norm = nn.RMSNorm(sizes.head_width, 1e-5)

    def marks(self, states: Tensor, queries: Callable[[], Tensor]) -> Tensor:
        """Return the rates b, (B, H, T, 1)."""
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


# Keys and values: shared by heads, projected from a narrow vector, or shifted.
#
# | name         | keys and values                                      | source                            |
# | ------------ | ---------------------------------------------------- | --------------------------------- |
# | multi_query  | one head of keys and values for all heads of queries | Shazeer 2019                      |
# | grouped      | G heads of keys and values (grouped:G)               | Ainslie et al. 2023, section 2.2  |
# | latent       | projected from a vector of width R (latent:R)        | DeepSeek-AI 2024, DeepSeek-V2     |
# | shifted_keys | each key is mixed with the key of the step before    | Olsson et al. 2022, argument 2    |


class Grouped(Sharing):
    """G heads of keys and values, each shared by `heads / G` heads of queries."""

    def __init__(self, sizes: LayerSizes, groups: int | None = None) -> None:
        super().__init__(sizes)
        self.groups = max(sizes.heads // 2, 1) if groups is None else groups
        check_range("groups", self.groups, 1, sizes.heads)
        if sizes.heads % self.groups:
            raise InputError(f"grouped: {self.groups} groups do not divide {sizes.heads} heads: choose a divisor")


class MultiQuery(Grouped):
    """One head of keys and values for all heads of queries."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes, 1)


class Latent(Sharing):
    """Keys and values are projected from a vector of width R, the latent (default: a quarter of the width).

    The cache stores the latent: R numbers for each step, where H heads of width d store 2 H d. Each decoding step
    projects the latents of all earlier steps; the paper instead multiplies queries and output by the projections.
    Rotary positions rotate all dimensions of the projected keys; the paper rotates separate dimensions, which it
    caches too (sections 2.1.2 and 2.1.3).
    """

    caches_inputs = True

    def __init__(self, sizes: LayerSizes, width: int | None = None) -> None:
        super().__init__(sizes)
        self.key_width = max(sizes.memory_width // 4, 1) if width is None else width
        self.down = nn.Linear(sizes.memory_width, self.key_width, bias=False)
        self.norm = nn.RMSNorm(self.key_width, 1e-5)

    def forward(self, states: Tensor) -> Tensor:
        """Return the latent (B, T, R) of states (B, T, Dm)."""
        latent: Tensor = self.norm(self.down(states))
        return latent


class ShiftedKeys(Sharing):
    """`k_j = a k_j + (1 - a) k_(j-1)`, with a learned for each head (initially 0.5). The first key is unchanged.

    With shifted keys, one layer can find the token that followed an earlier occurrence.
    """

    kinds = ("causal", "self")
    changes_keys = True

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(sizes)
        # sigmoid(0) = 0.5: both keys count equally at first, so either can be learned.
        self.mixture = nn.Parameter(torch.zeros(sizes.heads))

    def change_keys(self, keys: Tensor) -> Tensor:
        """Return the mixtures (B, G, Tk, d). Rotary positions are applied before."""
        # Differential attention has two keys for each head.
        own = self.mixture.sigmoid().repeat(keys.shape[1] // len(self.mixture)).view(-1, 1, 1).to(keys.dtype)
        # The first step has no step before it and is mixed with itself.
        before = torch.cat([keys[:, :, :1], keys[:, :, :-1]], dim=2)
        return own * keys + (1 - own) * before
