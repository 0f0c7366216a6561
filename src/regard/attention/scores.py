"""Scores: how well a query fits a key, before the softmax.

| name       | score of query q and key k | source                               |
| ---------- | -------------------------- | ------------------------------------ |
| dot        | q · k                      | Luong et al. 2015, section 3.1       |
| scaled_dot | q · k / √D                 | Vaswani et al. 2017, equation 1      |
| general    | q · W k                    | Luong et al. 2015, section 3.1       |
| concat     | v · tanh(W [q; k])         | Luong et al. 2015, section 3.1       |
| additive   | v · tanh(W q + U k)        | Bahdanau et al. 2015, appendix A.1.2 |

A score acts on the last two dimensions and broadcasts over those before, so one class serves single-head
attention (B, T, D) and heads side by side (B, H, T, D). A score of one's own is a class like those below:
built from the widths of queries and keys, with `forward` and, where something depends on the keys alone,
`prepare`.
"""

from torch import Tensor, nn

from regard.attention.energy import additive_scores
from regard.errors import InputError
from regard.plugins import build_plugin, plugin_class


class Score(nn.Module):
    """Base of all scores, for queries of width `width` and keys of width `key_width` (default: the same)."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.key_width = width if key_width is None else key_width

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what depends on the keys (..., Tk, Dk) alone, computed once per source: (..., Tk, any)."""
        return keys

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (..., Tq, Tk) of queries (..., Tq, D) against prepared keys (..., Tk, any)."""
        raise NotImplementedError

    def scale(self, width: int) -> float:
        """Return the factor on the sum of the last of `steps`, for queries of a width."""
        del width
        return 1.0

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return what the score of one query (D) and one prepared key (any) is made of, by name, in order.

        The sum of the last one's numbers, times `scale`, is the score. Nothing, where a score does not say.
        """
        del query, prepared
        return {}


class Dot(Score):
    """`q · k`: queries and keys have one width. Raises `InputError` where they have not."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        if self.width != self.key_width:
            raise InputError(
                f"queries of width {self.width} and keys of width {self.key_width} have no dot product: "
                f"make them equal, or use the score general, concat or additive"
            )

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return `Q Kᵀ`."""
        return query @ prepared.transpose(-2, -1)

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return the products `q_d k_d`."""
        return {"q": query, "k": prepared, "q * k": query * prepared}


class ScaledDot(Dot):
    """`q · k / √D`, the only score with a fused kernel."""

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return `Q Kᵀ / √D`; it is the queries that are scaled, of which there are fewer than pairs."""
        return super().forward(query * self.scale(query.shape[-1]), prepared)

    def scale(self, width: int) -> float:
        """Return `1 / √D`."""
        return float(width**-0.5)


class General(Score):
    """`q · W k`, with W (D, Dk)."""

    def __init__(self, width: int, key_width: int | None = None) -> None:
        super().__init__(width, key_width)
        self.key = nn.Linear(self.key_width, width, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return `W k` of every key."""
        found: Tensor = self.key(keys)
        return found

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return `Q (W K)ᵀ`."""
        return query @ prepared.transpose(-2, -1)

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return the products `q_d (W k)_d`."""
        return {"q": query, "W k": prepared, "q * W k": query * prepared}


class Additive(Score):
    """`v · tanh(W q + U k)`, with W (N, D), U (N, Dk) and v (N), without biases, as in the paper.

    N, the inner width, is D where none is given.
    """

    def __init__(self, width: int, key_width: int | None = None, inner_width: int | None = None) -> None:
        super().__init__(width, key_width)
        inner_width = width if inner_width is None else inner_width
        self.query = nn.Linear(width, inner_width, bias=False)
        self.key = nn.Linear(self.key_width, inner_width, bias=False)
        self.energy = nn.Linear(inner_width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return `U k` of every key."""
        found: Tensor = self.key(keys)
        return found

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return `v · tanh(W q + U k)` for every pair."""
        return additive_scores(self.query(query), prepared, self.energy.weight[0])

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return the energy `tanh(W q + U k)`, and its products with v."""
        projected: Tensor = self.query(query)
        energy = (projected + prepared).tanh()
        times = energy * self.energy.weight[0]
        return {"W q": projected, "U k": prepared, "tanh(W q + U k)": energy, "v * tanh(W q + U k)": times}


class Concat(Score):
    """`v · tanh(W [q; k])`, with one matrix W (N, D + Dk) over the two side by side, and v (N).

    N, the inner width, is D where none is given. The columns of W that meet the key are applied once for each
    key, as in `Additive`.
    """

    def __init__(self, width: int, key_width: int | None = None, inner_width: int | None = None) -> None:
        super().__init__(width, key_width)
        inner_width = width if inner_width is None else inner_width
        self.both = nn.Linear(width + self.key_width, inner_width, bias=False)
        self.energy = nn.Linear(inner_width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return the key's part of `W [q; k]`."""
        return keys @ self.both.weight[:, self.width :].t()

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return `v · tanh(W [q; k])` for every pair."""
        return additive_scores(self._project(query), prepared, self.energy.weight[0])

    def steps(self, query: Tensor, prepared: Tensor) -> dict[str, Tensor]:
        """Return the energy `tanh(W [q; k])`, in its two parts, and its products with v."""
        projected = self._project(query)
        energy = (projected + prepared).tanh()
        times = energy * self.energy.weight[0]
        return {
            "W [q; 0]": projected,
            "W [0; k]": prepared,
            "tanh(W [q; k])": energy,
            "v * tanh(W [q; k])": times,
        }

    def _project(self, query: Tensor) -> Tensor:
        return query @ self.both.weight[:, : self.width].t()


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "additive": Additive,
}


INNER = ("concat", "additive")
"""Scores with an inner width."""


def find_score(name: str) -> type[Score]:
    """Return the score called `name`, or the class that `module:Class` names.

    Raises `InputError` for a name that is unknown, or a class that cannot be imported or is no `Score`.
    """
    return SCORES[name] if name in SCORES else plugin_class("score", name, Score, SCORES)


def make_score(name: str, *widths: int) -> Score:
    """Return the score called `name` for queries and keys of some widths.

    Raises `InputError` where there is none, or one of a user's own cannot be built.
    """
    score, sizes = find_score(name), f"widths {', '.join(map(str, widths))}"
    return build_plugin("score", name, lambda: score(*widths), sizes, "the widths of queries and of keys")
