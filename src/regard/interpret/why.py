"""Split the score of one attention weight into what earlier parts of the model wrote into query and key.

    score = factor * (Σ_a q_a) · (Σ_b k_b) + additions = Σ_a Σ_b factor * q_a · k_b + additions

a, b: token embedding, position, each earlier head, each feed-forward layer, biases. Additions: position biases
such as ALiBi. The split is exact for norms with a fixed scale (see `linear_pass`). A head wrote a sum over the
steps that it read, so its part can be split further, with its attention weights fixed (`Why.trace`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor

from regard.arguments import Limits, public
from regard.errors import InputError, check_range
from regard.interpret.linear_pass import Contribution, LinearPass, group
from regard.result import Result, plain_table, signed, to_plain
from regard.viz.attention_map import skip_original
from regard.viz.maps import CROSS, LayerMap, Map
from regard.viz.subject import Input, ScoreCall, Subject, ViewedSubject, first_layer, layer_named

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree


PARTS_SHOWN = 8  # Number of printed parts of a query or key
PAIRS_SHOWN = 5  # Number of printed pairs
BAR_WIDTH = 12  # Length of the longest bar, in characters
DEPTH = 2  # Default number of levels of a trace
TOP = 3  # Default number of contributions of each level
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
        self, *, depth: Annotated[int, Limits(1, 1000)] = DEPTH, top: Annotated[int, Limits(1, 10**6)] | None = TOP
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
        from rich.text import Text

        table = plain_table(("", "", ""), show_header=False)
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


FROZEN = "the scales of norms and all attention weights of earlier layers are fixed at their values in this pass"
"""What every decomposition fixes."""
Labels = Sequence[str]


@public
def why(
    subject: ViewedSubject[Input],
    input: str | None = None,
    *,
    layer: str | None = None,
    head: int = 0,
    output: int = 0,
    key: int | None = None,
    seed: int = 0,
) -> Why:
    """Split the score of one attention weight into the parts that were written into its query and its key.

    `subject`: a run, or a result of `look`. `input`: by default an input drawn by `seed`. `layer`: by default as
    in `explain`. `output`: index of the query, from 0. `key`: index of the key, from 0; by default the key with
    the largest weight. Scales of norms are fixed at their values in this pass; the result says what else is.

    >>> run = regard.load("runs/signal2")    # doctest: +SKIP
    >>> result = regard.why(run, head=1, output=2)    # doctest: +SKIP
    >>> print(result, result.trace(depth=3))    # doctest: +SKIP

    Raises `InputError` for an unknown layer, head or step, for recurrent models, and for scores that are not sums
    of products of query and key.
    """
    with skip_original():
        shown = subject.attend(input, seed=seed)
        # With the random input of the map, so that both passes process the same input.
        forward = subject.forward_pass(shown.input if input is None else input)
        name = _find_layer(subject, layer)
        linear = LinearPass(subject.model, subject.components, forward)
    call = linear.call(name)
    if call.refusal:
        raise InputError(f"{name}: {call.refusal}")
    heads, queries, keys = call.weights.shape
    check_range("head", head, 0, heads - 1)
    check_range("output", output, 0, queries - 1)
    key = int(call.weights[head, output].argmax()) if key is None else key
    check_range("key", key, 0, keys - 1)
    return _Split(linear, shown, name, call, head, output, key).result()


def _find_layer(subject: Subject[Any], layer: str | None) -> str:
    name, _, number = (layer or first_layer(subject)).partition("#")
    return layer_named(name, [known.name for known in subject.layers]) + (f"#{number}" if number else "")


class _Split:
    """The parts of one score."""

    @torch.enable_grad()
    def __init__(
        self, linear: LinearPass, shown: Map, name: str, call: ScoreCall, head: int, query: int, key: int
    ) -> None:
        self.linear, self.shown, self.name, self.call = linear, shown, name, call
        self.head, self.query, self.key = head, query, key
        self.factor = self._number(call.factors)
        layer = shown.layers[name]
        self.labels: dict[str, Labels] = {"query": _labels_read(shown, layer), "key": layer.key_labels}
        self.sources = {
            "query": linear.sources(call.query[group(call.query, call.weights, head), query]),
            "key": linear.sources(call.key[group(call.key, call.weights, head), key]),
        }
        stacked = {side: [source.vector for source in sources] for side, sources in self.sources.items()}
        self.vectors = {side: torch.stack(vectors) for side, vectors in stacked.items()}

    def result(self) -> Why:
        """Return the parts, the largest first."""
        pairs = (self.vectors["query"] @ self.vectors["key"].T * self.factor).numpy()
        rows = np.argsort(-np.abs(pairs.sum(1)), kind="stable")
        columns = np.argsort(-np.abs(pairs.sum(0)), kind="stable")
        additions = {name: self._number(values) for name, values in self.call.additions.items()}
        score = self._number(self.call.scores)
        layer, permitted = self.shown.layers[self.name], self._number(self.call.mask, default=1.0)
        remarks = [FROZEN, *self.call.remarks] + ["the mask hides this key"] * (not permitted)
        return Why(
            input=self.shown.input,
            layer=self.name,
            head=self.head,
            query=self.query,
            key=self.key,
            query_label=layer.query_labels[self.query],
            key_label=layer.key_labels[self.key],
            weight=self._number(self.call.weights),
            score=score,
            query_parts=[self._part("query", int(row), float(pairs[row].sum())) for row in rows],
            key_parts=[self._part("key", int(column), float(pairs[:, column].sum())) for column in columns],
            pairs=pairs[rows][:, columns],
            additions=additions,
            remainder=score - float(pairs.sum()) - sum(additions.values()),
            fixed="; ".join(remarks),
            note=self.shown.note,
            tracer=self.trace,
        )

    def _part(self, side: str, index: int, value: float) -> ScorePart:
        source = self.sources[side][index]
        return ScorePart(
            kind=source.kind,
            name=source.name,
            head=source.head,
            step=source.step,
            text=describe(source, self.labels[side]),
            value=value,
        )

    def _number(self, values: Tensor | None, default: float = math.nan) -> float:
        """Return the value of this head, query and key, of a tensor that broadcasts to (H, Tq, Tk)."""
        if values is None:
            return default
        return float(values.expand(self.call.weights.shape)[self.head, self.query, self.key])

    def trace(self, depth: int, top: int | None) -> Trace:
        """Return the tree of the largest contributions."""
        score = self._number(self.call.scores)
        children = [
            _Branch(self, {"query": first, "key": second}, self.labels, {"query": 0, "key": 0}, "")
            for first in self.sources["query"]
            for second in self.sources["key"]
        ]
        named = [TraceNode(text=name, value=self._number(values)) for name, values in self.call.additions.items()]
        layer = self.shown.layers[self.name]
        query, key = layer.query_labels[self.query], layer.key_labels[self.key]
        text = f"score of {query} ({self.query}) on {key} ({self.key}), {self.name} head {self.head}"
        root = TraceNode(text=text, value=score, children=[*named, *_expand(children, depth - 1, top)])
        return Trace(root=root, fixed="; ".join([FROZEN, *self.call.remarks]))


class _Branch:
    """The product of a part of the query and a part of the key, which is split further on one side at a time."""

    def __init__(
        self,
        split: _Split,
        sources: dict[str, Contribution],
        labels: dict[str, Labels],
        levels: dict[str, int],
        side: str,
    ) -> None:
        self.split, self.sources, self.labels, self.levels, self.side = split, sources, labels, levels, side
        self.value = float(sources["query"].vector @ sources["key"].vector) * split.factor

    @property
    def text(self) -> str:
        """Description of the side that was split last, or of both sides."""
        texts = {side: describe(source, self.labels[side]) for side, source in self.sources.items()}
        if not self.side:
            return f"query: {texts['query']}, key: {texts['key']}"
        source = self.sources[self.side]
        if source.key is None:
            return f"{self.side}: {texts[self.side]}"
        weight = float(self.split.linear.call(source.name).weights[source.head, source.step, source.key])
        keys = self.split.shown.layers[source.name].key_labels
        return f"{self.side}: read {_step_text(source.key, keys)}, weight {weight:.4f}"

    def node(self, depth: int, top: int | None) -> TraceNode:
        children, note = self.children() if depth > 0 else ([], "")
        return TraceNode(text=self.text, value=self.value, children=_expand(children, depth - 1, top), note=note)

    def children(self) -> tuple[list[_Branch], str]:
        """Split the part of a head: by the steps that it read, or, at one step, by what was written there."""
        sides = [side for side in ("query", "key") if self.sources[side].kind == "head"]
        if not sides:
            return [], ""
        side = min(sides, key=self.levels.__getitem__)  # both sides of a pair of heads are split in turn
        source, labels, linear = self.sources[side], self.labels, self.split.linear
        try:
            if source.key is None:
                parts = linear.by_key(source)
            else:
                parts = linear.by_writer(source)
                labels = {**labels, side: self.split.shown.layers[source.name].key_labels}
        except InputError as error:
            return [], str(error)
        levels = {**self.levels, side: self.levels[side] + 1}
        return [_Branch(self.split, {**self.sources, side: part}, labels, levels, side) for part in parts], ""


def _expand(branches: list[_Branch], depth: int, top: int | None) -> list[TraceNode]:
    """Return the largest branches as nodes, and one node for all others."""
    ordered = sorted(branches, key=lambda branch: -abs(branch.value))
    kept = ordered if top is None else ordered[:top]
    nodes = [branch.node(depth, top) for branch in kept]
    others = ordered[len(kept) :]
    if others:
        nodes.append(TraceNode(text=count_others(len(others)), value=sum(branch.value for branch in others)))
    return nodes


def describe(source: Contribution, labels: Labels) -> str:
    """Return a part in words, with the label of its step.

    >>> describe(Contribution("token", "embedding", 1, torch.zeros(2)), ["a", "b"])
    "token 'b' (1)"
    """
    if source.step is None:
        return f"bias of {source.name}"
    if source.kind == "position":
        return f"position {source.step}"
    if source.kind == "token":
        return f"token {_step_text(source.step, labels)}"
    name = f"{source.name} head {source.head}" if source.kind == "head" else source.name
    return f"{name} at {_step_text(source.step, labels)}"


def _step_text(step: int, labels: Labels) -> str:
    label = labels[step] if step < len(labels) else str(step)
    return f"step {step}" if label == str(step) else f"{label!r} ({step})"


def _labels_read(shown: Map, layer: LayerMap) -> Labels:
    """Return the labels of what the queries of a layer read; a map labels a decoder's queries by its outputs."""
    if layer.kind == CROSS or layer.written:
        for other in shown.layers.values():
            if other.kind == "decoder" and len(other.key_labels) == len(layer.query_labels):
                return other.key_labels
    return layer.query_labels
