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
from torch import Tensor, nn

from regard.arguments import public

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
        del states, queries
        return None

    def change_context(self, context: Tensor) -> Tensor:
        """Return the context (B, H, Tq, d) after a change."""
        return context


@public
class Combination(Marked):
    """Base class of parts that combine the scores or weights of several heads or steps."""

    slot = "combination"
    splits: ClassVar[int] = 1
    """Number of score matrices for each head. The queries and keys of a head are split into this number of
    parts."""

    def change_scores(self, scores: Tensor, marks: Tensor | None, keys: Tensor, score: Pairs) -> Tensor:
        """Return changed scores (B, H, Tq, Tk). `keys` are (B, H, Tk, any), `score` is that of the layer."""
        del marks, keys, score
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
