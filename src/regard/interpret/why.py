"""Split the score of one attention weight into what earlier parts of the model wrote into query and key.

    score = factor * (Σ_a q_a) · (Σ_b k_b) + additions = Σ_a Σ_b factor * q_a · k_b + additions

a, b: token embedding, position, each earlier head, each feed-forward layer, biases. Additions: position biases
such as ALiBi. The split is exact for norms with a fixed scale (see `linear_pass`). A head wrote a sum over the
steps that it read, so its part can be split further, with its attention weights fixed (`Why.trace`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree
from torch import Tensor

from regard.arguments import Limits, public
from regard.errors import InputError, check_range
from regard.interpret.linear_pass import Contribution, LinearPass, group
from regard.result import Result, plain_table, signed, to_plain
from regard.viz.attention_map import skip_original
from regard.viz.maps import CROSS, Map
from regard.viz.subject import Input, ViewedSubject, first_layer, layer_named

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
    """Return "1 other" or "2 others"."""
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
        base, _, number = (layer or first_layer(subject)).partition("#")
        name = layer_named(base, [known.name for known in subject.layers]) + (f"#{number}" if number else "")
        linear = LinearPass(subject.model, subject.components, forward)
    call, shown_layer = linear.call(name), shown.layers[name]
    if call.refusal:
        raise InputError(f"{name}: {call.refusal}")
    heads, queries, keys = call.weights.shape
    check_range("head", head, 0, heads - 1)
    check_range("output", output, 0, queries - 1)
    key = int(call.weights[head, output].argmax()) if key is None else key
    check_range("key", key, 0, keys - 1)

    def value_of(values: Tensor) -> float:
        """Return the value of this head, query and key, of a tensor that broadcasts to (H, Tq, Tk)."""
        return float(values.expand(call.weights.shape)[head, output, key])

    with torch.enable_grad():
        sources = {
            "query": linear.sources(call.query[group(call.query, call.weights, head), output]),
            "key": linear.sources(call.key[group(call.key, call.weights, head), key]),
        }
    # The labels of what the queries read: a map labels a decoder's queries by its outputs.
    decoders = [other.key_labels for other in shown.layers.values() if other.kind == "decoder"]
    same = [names for names in decoders if len(names) == len(shown_layer.query_labels)]
    by_outputs = shown_layer.kind == CROSS or shown_layer.written
    labels = {"query": same[0] if by_outputs and same else shown_layer.query_labels, "key": shown_layer.key_labels}
    first, second = (torch.stack([source.vector for source in parts]) for parts in sources.values())
    factor, score = value_of(call.factors), value_of(call.scores)
    pairs = (first @ second.T * factor).numpy()
    order = {"query": np.argsort(-np.abs(pairs.sum(1)), kind="stable")}
    order["key"] = np.argsort(-np.abs(pairs.sum(0)), kind="stable")
    additions = {name: value_of(values) for name, values in call.additions.items()}
    remarks = [FROZEN, *call.remarks]
    hidden = call.mask is not None and not value_of(call.mask)

    def parts_of(side: str, values: np.ndarray) -> list[ScorePart]:
        return [
            ScorePart(
                **{field: getattr(sources[side][index], field) for field in ("kind", "name", "head", "step")},
                text=describe(sources[side][index], labels[side]),
                value=float(values[index]),
            )
            for index in order[side]
        ]

    def trace(depth: int, top: int | None) -> Trace:
        """Return the tree of the largest contributions."""
        branches = [
            _Branch({"query": one, "key": other}, labels, {"query": 0, "key": 0})
            for one in sources["query"]
            for other in sources["key"]
        ]
        query_label, key_label = shown_layer.query_labels[output], shown_layer.key_labels[key]
        text = f"score of {query_label} ({output}) on {key_label} ({key}), {name} head {head}"
        named = [TraceNode(text=text, value=value) for text, value in additions.items()]
        nodes = _Tracer(linear, shown, factor, top).expand(branches, depth - 1)
        return Trace(root=TraceNode(text=text, value=score, children=[*named, *nodes]), fixed="; ".join(remarks))

    return Why(
        input=shown.input,
        layer=name,
        head=head,
        query=output,
        key=key,
        query_label=shown_layer.query_labels[output],
        key_label=shown_layer.key_labels[key],
        weight=value_of(call.weights),
        score=score,
        query_parts=parts_of("query", pairs.sum(1)),
        key_parts=parts_of("key", pairs.sum(0)),
        pairs=pairs[order["query"]][:, order["key"]],
        additions=additions,
        remainder=score - float(pairs.sum()) - sum(additions.values()),
        fixed="; ".join([*remarks, *["the mask hides this key"] * hidden]),
        note=shown.note,
        tracer=trace,
    )


class _Branch(NamedTuple):
    """The product of a part of the query and a part of the key, which is split further on one side at a time."""

    sources: dict[str, Contribution]
    labels: Mapping[str, Labels]
    levels: dict[str, int]  # how often each side was split
    side: str = ""  # the side that was split last


class _Tracer(NamedTuple):
    """Follows the contributions to a score backwards."""

    linear: LinearPass
    shown: Map
    factor: float  # of the score
    top: int | None

    def expand(self, branches: list[_Branch], depth: int) -> list[TraceNode]:
        """Return the largest branches as nodes, and one node for all others."""
        values = [float(sources["query"].vector @ sources["key"].vector) * self.factor for sources, *_ in branches]
        ordered = sorted(zip(values, branches, strict=True), key=lambda item: -abs(item[0]))
        kept, nodes = ordered[: self.top], list[TraceNode]()
        for value, branch in kept:
            children, note = self.split(branch) if depth > 0 else ([], "")
            nodes.append(
                TraceNode(text=self.describe(branch), value=value, children=self.expand(children, depth - 1), note=note)
            )
        if others := ordered[len(kept) :]:
            nodes.append(TraceNode(text=count_others(len(others)), value=sum(value for value, _ in others)))
        return nodes

    def describe(self, branch: _Branch) -> str:
        """Describe the side that was split last, or both sides."""
        texts = {side: describe(source, branch.labels[side]) for side, source in branch.sources.items()}
        if not branch.side:
            return f"query: {texts['query']}, key: {texts['key']}"
        source = branch.sources[branch.side]
        if source.key is None:
            return f"{branch.side}: {texts[branch.side]}"
        weight = float(self.linear.call(source.name).weights[source.head, source.step, source.key])
        keys = self.shown.layers[source.name].key_labels
        return f"{branch.side}: read {_step_text(source.key, keys)}, weight {weight:.4f}"

    def split(self, branch: _Branch) -> tuple[list[_Branch], str]:
        """Split the part of a head: by the steps that it read, or, at one step, by what was written there."""
        sides = [side for side in ("query", "key") if branch.sources[side].kind == "head"]
        if not sides:
            return [], ""
        side = min(sides, key=branch.levels.__getitem__)  # both sides of a pair of heads are split in turn
        source, labels = branch.sources[side], branch.labels
        try:
            if source.key is None:
                parts = self.linear.by_key(source)
            else:
                parts = self.linear.by_writer(source)
                labels = {**labels, side: self.shown.layers[source.name].key_labels}
        except InputError as error:
            return [], str(error)
        levels = {**branch.levels, side: branch.levels[side] + 1}
        return [_Branch({**branch.sources, side: part}, labels, levels, side) for part in parts], ""


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
