"""Attention scores: the similarity of a query and a key, before the softmax.

| name        | score of query q and key k | source                               |
| ----------- | -------------------------- | ------------------------------------ |
| dot         | q · k                      | Luong et al. 2015, section 3.1       |
| scaled_dot  | q · k / √D                 | Vaswani et al. 2017, equation 1      |
| general     | q · W k                    | Luong et al. 2015, section 3.1       |
| concat      | v · tanh(W [q; k])         | Luong et al. 2015, section 3.1       |
| additive    | v · tanh(W q + U k)        | Bahdanau et al. 2015, appendix A.1.2 |
| cosine      | g cos(q, k), g learned     | Henry et al. 2020                    |
| soft_capped | c tanh(q · k / (c √D))     | Gemma Team 2024, Gemma 2             |
| scalable    | a log(n) q · k / √D        | Nakanishi 2025                       |

A score acts on the last two dimensions and broadcasts over the others, so single-head attention (B, T, D) and
multi-head attention (B, H, T, D) use the same class. A custom score is a subclass of `Score` that defines
`forward`. Its constructor takes the widths of queries and keys. A score may define `prepare` for computations
that depend only on the keys.
"""

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import fast
from regard.arguments import Limits, public
from regard.attention.functional import key_counts
from regard.errors import InputError
from regard.fast.additive import blockwise_scores
from regard.plugins import build_plugin, plugin_class


@public
class Score(nn.Module):
    """Base class of scores, for queries of width `width` and keys of width `key_width` (default `width`)."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.key_width = width if key_width is None else key_width

    def prepare(self, keys: Tensor) -> Tensor:
        """Return prepared keys (..., Tk, any) for keys (..., Tk, Dk); called once per source."""
        return keys

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (..., Tq, Tk) of queries (..., Tq, D) and prepared keys (..., Tk, any)."""
        raise NotImplementedError

    def rescale(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores (B, H, Tq, Tk) after a change that depends on the number of keys in the mask."""
        return scores

    def scale(self, width: int) -> float:
        """Return the factor by which the sum of the last tensor of `steps` is multiplied, for queries of `width`."""
        return 1.0

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return the intermediate results by name, for one query (D) and one prepared key (any).

        The score is the sum of the last tensor times `scale`. The result may be empty.
        """
        return {}


@public
class Dot(Score):
    """`q · k`, for queries and keys of the same width. Raises `InputError` for different widths.

    >>> Dot(2)(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        if self.width != self.key_width:
            raise InputError(
                f"queries of width {self.width} and keys of width {self.key_width} have no dot product: give "
                f"equal widths, or use the score general, concat or additive"
            )

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1)

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        return {"q": query, "k": prepared, "q * k": query * prepared}


@public
class ScaledDot(Dot):
    """`q · k / √D`, the only score with a fused kernel.

    >>> ScaledDot(4)(torch.ones(1, 4), torch.ones(1, 4))
    tensor([[2.]])
    """

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        # Scaling the queries takes fewer operations than scaling the scores, and half precision overflows less.
        return super().forward(query * query.shape[-1] ** -0.5, prepared)

    def scale(self, width: int) -> float:
        return float(width**-0.5)


@public
class General(Score):
    """`q · W k`, with W (D, Dk).

    >>> score = General(2, key_width=3)
    >>> score(torch.zeros(5, 2), score.prepare(torch.zeros(7, 3))).shape
    torch.Size([5, 7])
    """

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        self.key = nn.Linear(self.key_width, width, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1)

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        return {"q": query, "W k": prepared, "q * W k": query * prepared}


@public
class Additive(Score):
    """`v · tanh(W q + U k)`, with W (N, D), U (N, Dk) and v (N), without biases, as in the paper.

    N, the inner width, defaults to D.

    >>> score = Additive(2, key_width=3, inner_width=4)
    >>> score(torch.zeros(5, 2), score.prepare(torch.zeros(7, 3))).shape
    torch.Size([5, 7])
    """

    def __init__(self, width: int, key_width: int | None = None, inner_width: int | None = None) -> None:
        super().__init__(width, key_width)
        inner_width = width if inner_width is None else inner_width
        self.query = nn.Linear(width, inner_width, bias=False)
        self.key = nn.Linear(self.key_width, inner_width, bias=False)
        self.energy = nn.Linear(inner_width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return additive_scores(self.query(query), prepared, self.energy.weight[0])

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        projected: Tensor = self.query(query)
        energy = (projected + prepared).tanh()
        products = energy * self.energy.weight[0]
        return {"W q": projected, "U k": prepared, "tanh(W q + U k)": energy, "v * tanh(W q + U k)": products}


@public
class Concat(Score):
    """`v · tanh(W [q; k])`, with W (N, D + Dk) over the concatenation, and v (N).

    N, the inner width, defaults to D. The columns of W for the key are applied once per key, as in `Additive`.

    >>> score = Concat(2, key_width=3)
    >>> score(torch.zeros(5, 2), score.prepare(torch.zeros(7, 3))).shape
    torch.Size([5, 7])
    """

    def __init__(self, width: int, key_width: int | None = None, inner_width: int | None = None) -> None:
        super().__init__(width, key_width)
        inner_width = width if inner_width is None else inner_width
        self.both = nn.Linear(width + self.key_width, inner_width, bias=False)
        self.energy = nn.Linear(inner_width, 1, bias=False)

    # W [q; k] = W_q q + W_k k: the part of the keys is computed once for each source.
    def prepare(self, keys: Tensor) -> Tensor:
        return keys @ self.both.weight[:, self.width :].t()

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return additive_scores(self._project(query), prepared, self.energy.weight[0])

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        projected = self._project(query)
        energy = (projected + prepared).tanh()
        products = energy * self.energy.weight[0]
        return {"W [q; 0]": projected, "W [0; k]": prepared, "tanh(W [q; k])": energy, "v * tanh(W [q; k])": products}

    def _project(self, query: Tensor) -> Tensor:
        return query @ self.both.weight[:, : self.width].t()


class Cosine(Dot):
    """Cosine of query and key, times a learned number g, initially 10 (QK-norm)."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        # A softmax of cosines, which are at most 1, is almost uniform: the gain makes peaked rows possible.
        self.gain = nn.Parameter(torch.tensor(10.0))

    def prepare(self, keys: Tensor) -> Tensor:
        return F.normalize(keys, dim=-1)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return super().forward(F.normalize(query, dim=-1), prepared) * self.gain

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        query = F.normalize(query, dim=-1)
        return {"q / |q|": query, "k / |k|": prepared, "g q * k": query * prepared * self.gain}


class SoftCapped(ScaledDot):
    """`c tanh(q · k / (c √D))`: scores lie between -c and c."""

    def __init__(
        self, width: int, key_width: int | None = None, cap: Annotated[float, Limits(0, math.inf, "both")] = 50.0
    ) -> None:
        super().__init__(width, key_width)
        self.cap = cap

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().forward(query, prepared) / self.cap)

    def scale(self, width: int) -> float:
        """Return 1, because the cap is not a factor."""
        return 1.0

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        score = super().forward(query.unsqueeze(0), prepared.unsqueeze(0)).flatten()
        return {"q": query, "k": prepared, "q * k / √D": score, "capped": self.cap * torch.tanh(score / self.cap)}


class Scalable(ScaledDot):
    """`a log(n) q · k / √D`, where n is the number of keys that the query may attend to (scalable softmax).

    a is one learned number for the layer, initially 1 / log(16), so that the factor is 1 for 16 keys.
    """

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        self.gain = nn.Parameter(torch.tensor(1 / math.log(16)))

    def rescale(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return scores * (self.gain * key_counts(scores, mask).log())


def additive_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    energy = energy.to(query.dtype)  # under autocast, the projections have a lower precision than the weights
    if torch.compiler.is_compiling() or not fast.enabled():
        return pairwise_scores(query, keys, energy)
    return blockwise_scores(query, keys, energy)


def pairwise_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    return torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)) @ energy


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "additive": Additive,
    "cosine": Cosine,
    "soft_capped": SoftCapped,
    "scalable": Scalable,
}


INNER = ("concat", "additive")
"""Scores with an inner width."""


@public
def find_score(name: str) -> type[Score]:
    """Return the score class with a name, or the custom class named by `module:Class`.

    Raises `InputError` for an unknown name, or for a class that cannot be imported or is not a subclass of `Score`.

    >>> find_score("dot").__name__
    'Dot'
    """
    return SCORES[name] if name in SCORES else plugin_class("score", name, Score, SCORES)


@public
def make_score(name: str, *widths: int) -> Score:
    """Return the score with a name, for queries and keys of the given widths.

    Raises `InputError` for an unknown name, or if a custom class cannot be built.

    >>> type(make_score("general", 2, 3)).__name__
    'General'
    """
    score, sizes = find_score(name), f"widths {', '.join(map(str, widths))}"
    return build_plugin("score", name, lambda: score(*widths), sizes, "the widths of queries and of keys")
