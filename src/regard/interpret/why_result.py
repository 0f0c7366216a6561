"""The parts of the score of one attention weight, as numbers, tables and a tree; `why` computes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from regard.arguments import Limits, public
from regard.result import Result, signed, to_plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

PARTS_SHOWN = 8
"""Number of printed parts of a query or key."""
PAIRS_SHOWN = 5
"""Number of printed pairs."""
BAR_WIDTH = 12
"""Length of the longest bar, in characters."""
DEPTH = 2
"""Default number of levels of a trace."""
TOP = 3
"""Default number of contributions of each level."""
EQUAL = "A part that adds the same to the score of every key of a row does not change the weights."


@public
@dataclass(frozen=True, kw_only=True)
class ScorePart:
    """What one part of the model wrote into the query or the key, and how much it adds to the score."""

    kind: str
    """token, position, embedding, head, feed_forward, bias, or vector (a learned vector)."""
    name: str
    """Short name of the layer or module."""
    head: int | None
    step: int | None
    """Step at which it was written; None for a bias."""
    text: str
    value: float
    """Its product with the whole other side, times the factor of the score. The values of all parts of a side,
    plus the additions, sum to the score."""


@public
@dataclass(frozen=True, kw_only=True)
class TraceNode:
    """A contribution to a score. The values of the children sum to the value."""

    text: str
    value: float
    children: list[TraceNode] = field(default_factory=list)
    note: str = ""
    """Why the contribution is not split further, if it cannot be split."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Trace(Result):
    """The largest contributions to a score, followed backwards through the heads that wrote them.

    Levels alternate: pairs of a part of the query and a part of the key; the steps that a head read; what was
    written at such a step.
    """

    root: TraceNode
    fixed: str

    def summary(self) -> str:
        return f"{self.root.text}: {signed(self.root.value, 4)}"

    def table(self) -> Tree:
        from rich.text import Text
        from rich.tree import Tree

        tree = Tree(Text(f"{signed(self.root.value, 4)}  {self.root.text}"), guide_style="dim")

        def grow(branch: Tree, nodes: Sequence[TraceNode]) -> None:
            for node in nodes:
                note = f" (not split: {node.note})" if node.note else ""
                grow(branch.add(Text(f"{signed(node.value, 4)}  {node.text}{note}")), node.children)

        grow(tree, self.root.children)
        return tree


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Why(Result):
    """The score of one attention weight, split into what was written into its query and its key."""

    input: str
    layer: str
    head: int
    query: int
    """Index of the query, from 0."""
    key: int
    """Index of the key, from 0."""
    query_label: str
    key_label: str
    weight: float
    score: float
    """Score before the mask."""
    query_parts: list[ScorePart]
    """Parts of the query, the largest first."""
    key_parts: list[ScorePart]
    """Parts of the key, the largest first."""
    pairs: np.ndarray
    """(parts of the query, parts of the key): what each pair adds to the score."""
    additions: dict[str, float]
    """What is added to the product of query and key, such as a position bias."""
    remainder: float
    """Rounding: the score minus all pairs and additions."""
    fixed: str
    """What is fixed at its value in this pass."""
    note: str = ""
    """A remark on an unusual input; empty for a usual input."""
    tracer: Callable[[int, int | None], Trace] = field(compare=False)
    """Computes `trace`."""

    def trace(
        self,
        *,
        depth: Annotated[int, Limits(1, 1000)] = DEPTH,
        top: Annotated[int, Limits(1, 10**6)] | None = TOP,
    ) -> Trace:
        """Follow the largest contributions backwards.

        `depth`: number of levels. `top`: number of contributions that each level shows (None: all); the others
        are one sum. A head's contribution is split by the steps that it read (its weight times its value path,
        weights fixed), and then by what was written at these steps. Raises `InputError` for numbers below 1.
        """
        return self.tracer(depth, top)

    def json(self) -> dict[str, Any]:
        names = [item.name for item in dataclasses.fields(self) if item.name != "tracer"]
        return {name: to_plain(getattr(self, name)) for name in names}

    def summary(self) -> str:
        pair = f"{self.query_label} (step {self.query}) on {self.key_label} (step {self.key})"
        return f"{self.layer} head {self.head}: {pair} has score {self.score:.4f}, weight {self.weight:.4f}"

    def table(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        notes = [Text(f"Note: {self.note}")] if self.note else []
        added = [Text(f"{signed(value, 4)} {name}") for name, value in self.additions.items()]
        rows = [(f"{part.text}", part.value) for part in self.query_parts]
        columns = [(f"{part.text}", part.value) for part in self.key_parts]
        flat = np.argsort(-np.abs(self.pairs), axis=None, kind="stable")
        pairs = [
            (f"{self.query_parts[row].text} and {self.key_parts[column].text}", float(self.pairs[row, column]))
            for row, column in zip(*np.unravel_index(flat, self.pairs.shape), strict=True)
        ]
        return Group(
            Text(self.summary()),
            *notes,
            Text(f"Fixed: {self.fixed}."),
            *self._section("Written into the query", rows, PARTS_SHOWN),
            *self._section("Written into the key", columns, PARTS_SHOWN),
            *self._section("Pairs of a part of the query and a part of the key", pairs, PAIRS_SHOWN),
            *([Text("\nAdded to the score", style="bold"), *added] if added else []),
            Text(f"\n{EQUAL}"),
        )

    def _section(self, title: str, parts: Sequence[tuple[str, float]], count: int) -> list[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        table = Table("", "", "", box=None, pad_edge=False, show_header=False)
        largest = max([abs(value) for _, value in parts] + [1e-12])
        for text, value in parts[:count]:
            table.add_row(signed(value, 4), "█" * round(abs(value) / largest * BAR_WIDTH), Text(text))
        others = parts[count:]
        if others:
            table.add_row(signed(sum(value for _, value in others), 4), "", Text(count_others(len(others))))
        total = sum(value for _, value in parts)
        table.add_row(signed(total, 4), "", Text("sum" if self.additions else "sum: the score"))
        return [Text(f"\n{title}", style="bold"), table]


def count_others(count: int) -> str:
    """Return "1 other" or "2 others".

    >>> count_others(2)
    '2 others'
    """
    return f"{count} other{'s' * (count > 1)}"
