"""The result of an explanation method: a number for each input, head or edge."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from regard.arguments import public
from regard.result import Result

Level = Literal["inputs", "heads", "edges"]
"""What a method scores: inputs for each output step, heads, or edges between components."""
LEVELS: tuple[Level, ...] = get_args(Level)
LISTED_INPUTS = 5
"""Inputs of an output step that the table lists."""
LISTED_EDGES = 20


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Attribution(Result):
    """Scores of inputs, heads or edges: the larger, the more important by this method."""

    method: str
    level: Level
    input: str
    """The input, or the number of inputs over which the scores are averaged."""
    source: str = ""
    """Paper of the method."""
    target: list[str] = field(default_factory=list)
    """The explained class of each output step."""
    steps: list[int] = field(default_factory=list)
    """The output steps that are explained; the rows of `inputs`."""
    inputs: np.ndarray | None = None
    """(Tq, Tk): the score of each input for each output step."""
    heads: dict[str, np.ndarray] | None = None
    """By layer: (H,), the score of each head."""
    edges: dict[tuple[str, str], float] | None = None
    """By sender and receiver: the score of the edge."""
    labels: list[str] = field(default_factory=list)
    """Name of each input, if known."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers without a score, with the reason."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on what the scores leave out or approximate."""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return the heads by descending score: (score, layer, head)."""
        heads = self.heads or {}
        scores = [(float(score), name, head) for name, layer in heads.items() for head, score in enumerate(layer)]
        return sorted(scores, key=lambda item: -item[0])

    def summary(self) -> str:
        return f"{self.method} of {self.level}, {self.input}"

    def table(self) -> RenderableType:
        tables = {"inputs": self._input_table, "heads": self._head_table, "edges": self._edge_table}
        table = tables[self.level]()
        left_out = [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return Group(f"{self.method} ({self.level}): {self.input}", table, *self.remarks, *left_out)

    def json(self) -> dict[str, Any]:
        edges = None if self.edges is None else {f"{a} -> {b}": score for (a, b), score in self.edges.items()}
        return {**super().json(), "edges": edges}

    def _input_table(self) -> Table:
        assert self.inputs is not None
        table = Table("output", "class", "inputs with the largest scores", box=None, pad_edge=False)
        names = self.labels or [""] * self.inputs.shape[1]
        for step, target, scores in zip(self.steps, self.target, self.inputs, strict=True):
            order = np.argsort(-scores, kind="stable")[:LISTED_INPUTS]
            listed = (f"{names[index]}[{index}] {scores[index]:.3g}" for index in order)
            table.add_row(str(step), target, "  ".join(listed))
        return table

    def _head_table(self) -> Table:
        assert self.heads is not None
        most = max((len(scores) for scores in self.heads.values()), default=0)
        table = Table("layer", *(f"head {head}" for head in range(most)), box=None, pad_edge=False)
        for name, scores in self.heads.items():
            table.add_row(name, *(f"{score:.4g}" for score in scores))
        return table

    def _edge_table(self) -> Table:
        table = Table("from", "to", "score", box=None, pad_edge=False)
        ranked = sorted((self.edges or {}).items(), key=lambda item: -item[1])
        for (sender, receiver), score in ranked[:LISTED_EDGES]:
            table.add_row(sender, receiver, f"{score:.4g}")
        return table
