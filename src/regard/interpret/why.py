"""Split the score of one attention weight into what earlier parts of the model wrote into query and key.

    score = factor * (Σ_a q_a) · (Σ_b k_b) + additions = Σ_a Σ_b factor * q_a · k_b + additions

a, b: token embedding, position, each earlier head, each feed-forward layer, biases. Additions: position biases
such as ALiBi. The split is exact for norms with a fixed scale (see `linear_pass`). A head wrote a sum over the
steps that it read, so its part can be split further, with its attention weights fixed (`Why.trace`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.arguments import public
from regard.errors import InputError, check_range
from regard.interpret.contributions import Contribution
from regard.interpret.linear_pass import LinearPass, group
from regard.interpret.why_result import ScorePart, Trace, TraceNode, Why, count_others
from regard.viz.forward_pass import ScoreCall
from regard.viz.maps import CROSS, LayerMap, Map
from regard.viz.records import skip_original
from regard.viz.subject import Input, Subject, layer_named

FROZEN = "the scales of norms and all attention weights of earlier layers are fixed at their values in this pass"
"""What every decomposition fixes."""
Labels = Sequence[str]


@public
def why(
    subject: Subject[Input],
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
        name = _find_layer(subject, layer, shown)
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


def _find_layer(subject: Subject[Any], layer: str | None, shown: Map) -> str:
    layers = subject.layers
    if not layers:
        raise InputError("the model has no attention whose scores could be split: choose a model with attention")
    if layer is None:
        return next((known.name for known in layers if known.kind == CROSS), layers[0].name)
    name, _, number = layer.partition("#")
    return layer_named(name, [known.name for known in layers]) + (f"#{number}" if number else "")


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
        self.vectors = {side: _stack(sources) for side, sources in self.sources.items()}

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


def _stack(sources: Sequence[Contribution]) -> Tensor:
    return torch.stack([source.vector for source in sources])
