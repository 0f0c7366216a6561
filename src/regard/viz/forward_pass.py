"""One forward pass of a subject, as the decomposition of attention scores needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from torch import Tensor, nn


class ScoreCall(NamedTuple):
    """One call of an attention layer for one input. Query, key and value are connected to the autograd graph.

    score = factors * (query · key) + sum of the additions
    """

    query: Tensor
    """(H, Tq, D), after rotary positions and norms of queries."""
    key: Tensor
    """(G, Tk, D), as multiplied with the queries. H is a multiple of G."""
    value: Tensor
    """(G', Tk, Dv). H is a multiple of G'."""
    weights: Tensor
    """(H, Tq, Tk)."""
    scores: Tensor
    """(H, Tq, Tk), before the mask."""
    factors: Tensor
    """Broadcastable to (H, Tq, Tk)."""
    additions: Mapping[str, Tensor]
    """By name: what is added to the scores, such as a position bias, broadcastable to (H, Tq, Tk)."""
    mask: Tensor | None
    """Broadcastable to (H, Tq, Tk), True = may be attended; None if there is no mask."""
    remarks: tuple[str, ...] = ()
    """What is fixed at its value in this pass, one phrase each."""
    refusal: str = ""
    """Why the scores are not a sum of products of query and key; empty if they are."""


Calls = Mapping[str, list[ScoreCall]]
"""The calls of each attention layer, by short name."""


class ForwardPass(NamedTuple):
    """The forward pass that an attention map shows, which can be run again."""

    run: Callable[[], Any]
    """Runs the pass."""
    record: Callable[[], AbstractContextManager[Calls]]
    """Records the calls of all attention layers inside a block."""
    embeddings: frozenset[nn.Module]
    """The modules that embed tokens."""
