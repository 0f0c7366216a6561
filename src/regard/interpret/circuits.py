"""Circuits: how much of a behaviour a part of a model's edges computes, ACDC, and files of circuits.

    m(C)   metric of a circuit C: each receiver reads what senders write in this pass along edges of C, and
           along all other edges what they wrote for the corrupted input
    f(C) = (m(C) - m(no edge)) / (m(all edges) - m(no edge)), with means of m over pairs of inputs
    CPR  = area under f of the int(k * edges) best edges over k = 0.001 ... 1 (trapezoid rule); larger is better
    CMD  = area under |1 - f|; smaller is better

The definitions are those of MIB (Mueller et al. 2025, "MIB: A mechanistic interpretability benchmark") and of its
code: the integrated circuit performance ratio (CPR) ranks edges by score, the integrated circuit-model distance (CMD)
by absolute score. Nodes without a way from the input and to the logits are removed, which changes no output. Edges
with equal scores keep their order in the graph; PyTorch's sort, in MIB's code, leaves their order open.

ACDC (Conmy et al. 2023) starts with all edges. From the logits to the inputs, it removes each edge whose removal
increases the loss of the current circuit by less than a threshold. The loss is the Kullback-Leibler divergence of the
model's prediction from that of the circuit, or the negative difference of answers. Departure: the edges are those of
MIB, so queries, keys and values of a head have edges, but none inside the head; senders are tried from the last one on.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from rich.console import Group, RenderableType
from torch import Tensor

from regard.activations.components import KINDS
from regard.arguments import public
from regard.errors import InputError, unknown_choice
from regard.interpret.edges import (
    INPUTS,
    LOGITS,
    Edges,
    Metrics,
    Node,
    Pass,
    ResidualGraph,
    edge_gradients,
    edge_patching,
    integrated_edge_gradients,
    own_part,
    score_edges,
)
from regard.interpret.patching import SAME, Metric, compare_runs
from regard.io import read_json, write_file
from regard.progress import counting_bar
from regard.result import Result, plain_table
from regard.viz.subject import Subject, check_subject

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the edges, as in MIB
THRESHOLD = 0.01  # Smallest increase of the loss for which ACDC keeps an edge
PAIRS = 5  # Drawn pairs of inputs
LISTED = 10  # Edges that the table lists
Edge = tuple[str, str]
Loss = Literal["kl", "difference"]
METHODS: dict[str, Callable[[ResidualGraph, Pass, Pass, Metrics], Edges]] = {
    "eap_ig": integrated_edge_gradients,
    "eap": lambda graph, clean, corrupted, metric: score_edges(graph, clean, corrupted, edge_gradients(graph, metric)),
    "edge_patching": edge_patching,
}


def node_of(receiver: str) -> str:
    """Return the head or layer of a receiver, in the names of Regard or of MIB.

    >>> node_of("decoder.0.self_attention.1.query"), node_of("a0.h1<q>"), node_of("m0")
    ('decoder.0.self_attention.1', 'a0.h1', 'm0')
    """
    head, _, kind = receiver.rpartition(".")
    return head if kind in KINDS else receiver.partition("<")[0]


def prune(edges: Iterable[Edge]) -> set[Edge]:
    """Return the edges that lie on a way from the inputs to the logits.

    >>> prune([("inputs", "m0"), ("m0", "logits"), ("m0", "m1"), ("a0.h0", "logits")]) == {
    ...     ("inputs", "m0"), ("m0", "logits")}
    True
    """
    kept = set(edges)
    while True:
        written, read = {INPUTS, *(node_of(end) for _, end in kept)}, {LOGITS, *(start for start, _ in kept)}
        left = {(start, end) for start, end in kept if start in written and node_of(end) in read}
        if left == kept:
            return kept
        kept = left


@torch.no_grad()
def run_circuit(graph: ResidualGraph, corrupted: Pass, kept: Collection[Edge]) -> Tensor:
    """Return the logits (1, T, C) of a circuit.

    Copy 0 is the pass of the circuit. Each other copy holds the stream of the receivers that lack the same edges:
    senders write what they write in copy 0, or their corrupted output.
    """
    kept = prune(kept)
    nodes = {LOGITS, *(sender for sender, _ in kept)}
    reads: dict[Node, Tensor] = {}
    waiting = [node for node in graph.receivers if node_of(node.name) in nodes]
    logits = corrupted.logits
    while waiting:
        copies: dict[frozenset[Node], list[Node]] = {}
        for node in waiting:
            senders = (sender for key in graph.edges[node.key] for sender in graph.nodes_of_sender(key))
            lacking = frozenset(sender for sender in senders if (sender.name, node.name) not in kept)
            if lacking not in copies and len(copies) == graph.copies:
                break
            copies.setdefault(lacking, []).append(node)
        done = {node for members in copies.values() for node in members}

        def send(name: str, value: Tensor, copies: Mapping[frozenset[Node], Any] = copies) -> Tensor:
            value = value[:1].repeat(len(value), *[1] * (value.dim() - 1))
            for copy, lacking in enumerate(copies, 1):
                for sender in lacking:
                    if sender.key == name:
                        graph.part(value[copy], sender).copy_(graph.part(corrupted.sent[name][0], sender))
            return value

        def receive(name: str, value: Tensor, copies: Mapping[frozenset[Node], list[Node]] = copies) -> Tensor:
            for copy, members in enumerate(copies.values(), 1):
                reads.update({node: value[copy][own_part(node)].clone() for node in members if node.key == name})
            for node, read in reads.items():
                if node.key == name:
                    value[0][own_part(node)] = read
            return value

        passed = graph.full(len(copies) + 1, send=send, receive=receive).logits
        for copy, members in enumerate(copies.values(), 1):
            if any(node.key == LOGITS for node in members):
                logits = passed[copy : copy + 1]
        waiting = [node for node in waiting if node not in done]
    return logits


class _Pair(NamedTuple):
    """A clean and a corrupted input on which circuits are compared."""

    graph: ResidualGraph
    clean: Pass
    corrupted: Pass
    metric: Metrics
    divergence: Metrics

    def measure(self, kept: Collection[Edge], loss: Loss = "difference") -> float:
        """Return the metric of a circuit, or its divergence from the model."""
        logits = run_circuit(self.graph, self.corrupted, kept)
        return float(self.divergence(logits) if loss == "kl" else self.metric(logits))


Pairs = int | Sequence[tuple[Any, ...]]


def _compare(
    subject: Subject[Any], pairs: Pairs, answers: Any, metric: Metric | None, step: int | None, seed: int
) -> list[_Pair]:
    """Return the runs of each pair. A number of pairs is drawn, by length, without pairs of one answer."""
    check_subject(subject)
    chosen: Any = pairs
    if isinstance(pairs, int):
        lengths = [(subject.trial(input).tokens, input) for input in subject.unseen(8 * pairs, seed, purpose="circuit")]
        ordered = sorted(lengths, key=lambda drawn: 0 if drawn[0] is None else len(drawn[0]))
        chosen = pairwise(input for _, input in ordered)
    found: list[_Pair] = []
    for clean, corrupted, *own in chosen:
        try:
            _, graph, passes, difference = compare_runs(
                subject, clean, corrupted, None, answers=own[0] if own else answers, metric=metric, step=step
            )
        except InputError as error:
            if isinstance(pairs, int) and (str(error).startswith(SAME) or "same number of tokens" in str(error)):
                continue
            raise
        before = passes[0].logits[0, difference.step].double().log_softmax(-1)

        def metrics(logits: Tensor, measure: Metric = difference.measure) -> Tensor:
            return torch.stack([measure(rows.double()) for rows in logits])

        def divergence(logits: Tensor, before: Tensor = before, step: int = difference.step) -> Tensor:
            after = logits[:, step].double().log_softmax(-1)
            return (before.exp() * (before - after)).sum(-1)

        found.append(_Pair(graph, *passes, metrics, divergence))
        if found[0].graph.edges != graph.edges:
            raise InputError("the pairs have different edges: give inputs that run the same layers")
        if len(found) == pairs:
            break
    if not found:
        raise InputError(
            f"{subject.name} has no pair of inputs of equal length with different answers: give pairs of inputs"
        )
    return found


def mib_names(graph: ResidualGraph) -> dict[str, str]:
    """Return MIB's names of all senders and receivers. The result is empty for a model that is not one stack of
    layers with equally many heads, each of which reads from all earlier senders: MIB has no names for it."""
    keys = list(dict.fromkeys(node.key for node in graph.senders))
    layers = [key for key in keys if key in graph.components.heads]
    others = [key for key in keys[1:] if key not in layers]
    names, counts = {INPUTS: "input", LOGITS: "logits"}, {graph.components.heads[key].heads for key in layers}
    expected = {LOGITS: keys}
    for number, layer in enumerate(layers):
        expected |= {f"{layer}.{kind}": keys[: keys.index(layer)] for kind in KINDS}
        for head in range(graph.components.heads[layer].heads):
            names[f"{layer}.{head}"] = node = f"a{number}.h{head}"
            names |= {f"{layer}.{head}.{kind}": f"{node}<{kind[0]}>" for kind in KINDS}
    for number, (layer, name) in enumerate(zip(layers, others, strict=False)):
        expected[name] = keys[: keys.index(layer if is_parallel(graph) else name)]
        names[name] = f"m{number}"
    fits = len(counts) == 1 and len(others) in (0, len(layers))
    return names if fits and all(set(graph.edges[key]) == set(expected.get(key, ())) for key in graph.edges) else {}


def is_parallel(graph: ResidualGraph) -> bool:
    """Return whether feed-forward layers do not read the heads of their own layer."""
    read = next((graph.edges[node.key] for node in graph.receivers if node.head is None), [])
    return len(graph.components.feed_forward) > 0 and not any(key in graph.components.heads for key in read)


HOOK = re.compile(r"(?:blocks\.(\d+)\.)?(?:attn\.)?hook_(\w+?)(?:\[(\d+)\])?")
HOOKS = {
    "embed": "input", "resid_pre": "input", "result": "a{0}.h{1}", "mlp_out": "m{0}", "mlp_in": "m{0}",
    "resid_post": "logits", **{f"{kind}_input": f"a{{0}}.h{{1}}<{kind}>" for kind in "qkv"},
}  # fmt: skip
"""MIB's names for the hooks of TransformerLens, in which InterpBench publishes its edges."""
PICKLES = {
    ".pkl": "json.dump(pickle.load(open({0!r}, 'rb')), open({1!r}, 'w')), after import json, pickle",
    ".pt": "eap.graph.Graph.from_pt({0!r}).to_json({1!r}), of EAP-IG",
}


@dataclass
class _File:
    """A circuit in the form of `Graph.to_json` of EAP-IG and MIB."""

    cfg: dict[str, Any]
    nodes: dict[str, Any]
    edges: dict[str, dict[str, bool | float | None]]


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class CircuitScores(Result):
    """Scores of the edges of a model, and the edges of a circuit."""

    method: str
    scores: dict[Edge, float]
    """By sender and receiver: the score of the edge. Names are those of Regard or, of a file, those of MIB."""
    kept: set[Edge]
    """The edges of the circuit; of a method that only ranks edges: all."""
    config: dict[str, Any] = field(default_factory=dict)
    """MIB's description of the model: n_layers, n_heads, parallel_attn_mlp, d_model."""
    nodes: dict[str, Any] = field(default_factory=dict)
    """What a file says about nodes."""
    names: dict[str, str] = field(default_factory=dict)
    """MIB's names of senders and receivers."""
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | Path) -> "CircuitScores":
        """Read a circuit: JSON of MIB and EAP-IG, or a list of InterpBench's edges. Raises `InputError` for a pickle,
        and for a circuit of single neurons."""
        path = Path(path)
        if (convert := PICKLES.get(path.suffix)) is not None:
            call = convert.format(path.name, path.with_suffix(".json").name)
            raise InputError(f"{path.name} is a pickle, which can run code: if you trust it, convert it with {call}")
        content: Any = read_json(path, _File | list[tuple[str, str]], "give a circuit of MIB or EAP-IG", finite=False)  # type: ignore[arg-type]
        if isinstance(content, list):
            return cls._of_hooks(path, content)
        if any(isinstance(node, dict) and "neurons" in node for node in content.nodes.values()):
            raise InputError(f"{path} selects neurons: give a circuit of edges")
        edges: dict[Edge, Any] = {}
        for name, entry in content.edges.items():
            start, arrow, end = name.partition("->")
            if not arrow:
                raise InputError(f"{path} has an edge {name!r}: expected SENDER->RECEIVER, such as a0.h1->m0")
            edges[start, end] = entry
        scores: Any = {edge: entry["score"] for edge, entry in edges.items() if entry.get("score") is not None}
        kept = {edge for edge, entry in edges.items() if entry.get("in_graph")}
        return cls(method=str(path), scores=scores, kept=kept, config=content.cfg, nodes=content.nodes)

    @classmethod
    def _of_hooks(cls, path: Path, hooks: Sequence[Edge]) -> "CircuitScores":
        edges: dict[Edge, float] = {}
        for pair in hooks:
            matches = [HOOK.fullmatch(hook) for hook in pair]
            known = [match and HOOKS.get(match[2], "").format(match[1], match[3]) for match in matches]
            if None in known:
                raise InputError(f"{path} has an edge {pair}: expected hooks such as blocks.0.attn.hook_result[1]")
            if all(known):
                edges[str(known[0]), str(known[1])] = 1.0
        count = len(hooks) - len(edges)
        remarks = [f"left out: {count} edges inside heads or from positions, which are no senders"] if count else []
        return cls(method=str(path), scores=edges, kept=set(edges), remarks=remarks)

    def write(self, path: str | Path) -> None:
        """Write the circuit in the form of `Graph.to_json` of EAP-IG. A model for which MIB has no names keeps those of
        Regard, and EAP-IG cannot read its file."""
        edges: dict[str, dict[str, Any]] = {}
        for edge in self.scores or dict.fromkeys(sorted(self.kept)):
            score = {"score": self.scores[edge]} if edge in self.scores else {}
            edges["->".join(self.names.get(name, name) for name in edge)] = {**score, "in_graph": edge in self.kept}
        write_file(Path(path), json.dumps({"cfg": self.config, "nodes": self.nodes, "edges": edges}).encode())

    def summary(self) -> str:
        return f"{self.method}: {len(self.kept)} of {len(self.scores)} edges"

    def table(self) -> RenderableType:
        best = sorted(self.scores, key=lambda edge: -abs(self.scores[edge]))[:LISTED]
        rows = ((*edge, f"{self.scores[edge]:+.4g}", "yes" if edge in self.kept else "no") for edge in best)
        return Group(plain_table(("from", "to", "score", "kept"), rows, self.summary()), *self.remarks)

    def json(self) -> dict[str, Any]:
        plain = {f"{start} -> {end}": score for (start, end), score in self.scores.items()}
        return {**super().json(), "scores": plain, "kept": [f"{start} -> {end}" for start, end in sorted(self.kept)]}


@public
def find_circuit(
    subject: Subject[Any],
    pairs: Pairs = PAIRS,
    *,
    method: str = "eap_ig",
    threshold: float = THRESHOLD,
    loss: Loss = "kl",
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> CircuitScores:
    """Score the edges of a model by their effect on a metric, averaged over pairs of inputs, or search with ACDC.

    `pairs`: (clean, corrupted) inputs, or (clean, corrupted, answers); a number: drawn by `seed`. `method`: eap_ig,
    eap, edge_patching or acdc. `threshold`, `loss` (kl or difference): of ACDC. Other arguments as in `patch`.

    >>> circuit = regard.find_circuit(run, [("BCCCB", "BCCCA")], method="acdc")    # doctest: +SKIP
    >>> circuit.write("circuit.json")    # doctest: +SKIP

    Raises `InputError` for an unknown method, inputs of different lengths or equal answers, and inseparable edges.
    """
    if method not in (*METHODS, "acdc"):
        raise unknown_choice("method", method, (*METHODS, "acdc"))
    if loss not in ("kl", "difference"):
        raise unknown_choice("loss", loss, ("kl", "difference"))
    if not threshold > 0:
        raise InputError(f"threshold {threshold} is out of range: choose above 0")
    with torch.no_grad(), subject.patchable.calling_hooks():
        compared = _compare(subject, pairs, answers, metric, step, seed)
        graph = compared[0].graph
        if method == "acdc":
            scores, kept = acdc(compared, threshold, loss, progress=progress)
        else:
            scores = dict.fromkeys(graph.all_edges, 0.0)
            with counting_bar(f"{method}, pairs", 0, len(compared), show=progress) as advance:
                for pair in compared:
                    for edge, score in METHODS[method](pair.graph, pair.clean, pair.corrupted, pair.metric).items():
                        scores[edge] += score / len(compared)
                    advance()
            kept = set(scores)
        names, width = mib_names(graph), compared[0].clean.sent[INPUTS].shape[-1]
    nodes = {INPUTS, LOGITS, *(node_of(end) for _, end in kept)}
    heads = list(graph.components.heads.values())
    size = {"n_layers": len(heads), "n_heads": heads[0].heads, "parallel_attn_mlp": is_parallel(graph)}
    remark = "MIB has no names for this model: files keep Regard's names, and EAP-IG cannot read them"
    return CircuitScores(
        method=method,
        scores=scores,
        kept=kept,
        config={**size, "d_model": width},
        nodes={
            names.get(name, name): {"in_graph": name in nodes}
            for name in [*(sender.name for sender in graph.senders), LOGITS]
        },
        names=names,
        remarks=[] if names else [remark],
    )


def acdc(pairs: Sequence[_Pair], threshold: float, loss: Loss, *, progress: bool = False) -> tuple[Edges, set[Edge]]:
    """Return, for each edge, the increase of the loss when ACDC tries to remove it, and the edges that it keeps."""
    sign = 1 if loss == "kl" else -1
    edges = pairs[0].graph.all_edges
    kept, effects = set(edges), dict.fromkeys(edges, 0.0)

    def measured(edges: set[Edge]) -> float:
        return sign * sum(pair.measure(edges, loss) for pair in pairs) / len(pairs)

    before = measured(kept)
    with counting_bar("acdc, edges", 0, len(edges), show=progress, every=max(1, len(edges) // 10)) as advance:
        for edge in reversed(edges):
            node = node_of(edge[1])
            if node == LOGITS or any(start == node for start, _ in kept):
                after = measured(kept - {edge})
                effects[edge] = after - before
            if effects[edge] < threshold:
                kept.remove(edge)
                before += effects[edge]
            advance()
    return effects, prune(kept)


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Faithfulness(Result):
    """Faithfulness over the size of a circuit, as in MIB."""

    method: str
    pairs: int
    edges: int
    """Number of edges of the model."""
    shares: list[float]
    counts: list[int]
    """Number of chosen edges."""
    by_score: list[float]
    """Faithfulness of the edges with the largest scores."""
    by_absolute: list[float]
    """Faithfulness of the edges with the largest absolute scores."""
    connected: list[list[int]]
    """Number of chosen edges on a way from inputs to logits, by score and by absolute score."""
    cpr: float
    """Area under `by_score`; larger is better."""
    cmd: float
    """Area under |1 - `by_absolute`|; smaller is better."""
    kept: int | None = None
    """Number of edges of the circuit, if the method chooses edges."""
    kept_faithfulness: float | None = None
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> str:
        return f"{self.method}: CPR {self.cpr:.3f} (larger is better), CMD {self.cmd:.3f} (smaller is better)"

    def table(self) -> RenderableType:
        columns = zip(self.shares, self.counts, self.by_score, self.by_absolute, *self.connected, strict=True)
        rows = (
            (f"{share:.1%}", str(count), f"{first:.3f}", str(ways), f"{second:.3f}", str(others))
            for share, count, first, second, ways, others in columns
        )
        title = f"Faithfulness of the best of {self.edges} edges, {self.pairs} pairs of inputs"
        table = plain_table(("edges", "number", "by score", "connected", "by |score|", "connected"), rows, title)
        circuit = f"The circuit of {self.kept} edges has faithfulness {self.kept_faithfulness or 0:.3f}."
        return Group(table, self.summary(), *([circuit] if self.kept is not None else []), *self.remarks)


@public
def faithfulness(
    subject: Subject[Any],
    scores: CircuitScores | Mapping[Any, float] | Collection[Any],
    pairs: Pairs = PAIRS,
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Faithfulness:
    """Measure CPR and CMD of scores of edges on pairs of inputs.

    `scores`: a circuit, edges with scores, or a set of edges; an edge is (sender, receiver), in Regard's or MIB's
    names, or MIB's text such as `a0.h1->m0`. An edge without a score has 0. Other arguments as in `find_circuit`.

    >>> regard.faithfulness(run, {("inputs", "logits"): 0.3}, [("BCCCB", "BCCCA")]).cpr    # doctest: +SKIP

    Raises `InputError` for an edge that the model does not have, and as `find_circuit`.
    """
    source = scores.method if isinstance(scores, CircuitScores) else "given scores"
    with torch.no_grad(), subject.patchable.calling_hooks():
        compared = _compare(subject, pairs, answers, metric, step, seed)
        graph, count = compared[0].graph, len(compared)
        aliases = {theirs: own for own, theirs in mib_names(graph).items()}
        values = dict.fromkeys(edges := graph.all_edges, 0.0)

        def own(edge: Any) -> Edge:
            pair = edge.split("->") if isinstance(edge, str) else edge
            name = tuple(aliases.get(end, end) for end in pair)
            if name not in values:
                raise InputError(f"{source}: {subject.name} has no edge {'->'.join(map(str, pair))}: give its edges")
            return name

        ranked: Any = scores.scores or scores.kept if isinstance(scores, CircuitScores) else scores
        ranked = ranked if isinstance(ranked, Mapping) else dict.fromkeys(ranked, 1.0)
        values |= {own(edge): score for edge, score in ranked.items()}
        clean = sum(float(pair.metric(pair.clean.logits)) for pair in compared) / count
        corrupted = sum(float(pair.metric(pair.corrupted.logits)) for pair in compared) / count
        if clean == corrupted:
            raise InputError("the mean metric is the same for clean and corrupted inputs: give other pairs")

        @cache  # small circuits are often empty, and both rankings are the same if no score is negative
        def faithful(connected: frozenset[Edge]) -> float:
            value = sum(pair.measure(connected) for pair in compared) / count
            advance()
            return (value - corrupted) / (clean - corrupted)

        counts = [int(share * len(edges)) for share in SHARES]
        orders = [sorted(edges, key=lambda edge: -key(values[edge])) for key in (float, abs)]
        circuits = [[frozenset(prune(order[:most])) for most in counts] for order in orders]
        distinct = len({connected for sizes in circuits for connected in sizes})
        with counting_bar("faithfulness, circuits", 0, distinct, show=progress, every=5) as advance:
            curves = [list(map(faithful, sizes)) for sizes in circuits]
            kept = {own(edge) for edge in scores.kept} if isinstance(scores, CircuitScores) else set(edges)
            own_faithfulness = faithful(frozenset(prune(kept))) if len(kept) < len(edges) else None
    return Faithfulness(
        method=source,
        pairs=count,
        edges=len(edges),
        shares=list(SHARES),
        counts=counts,
        by_score=curves[0],
        by_absolute=curves[1],
        connected=[list(map(len, sizes)) for sizes in circuits],
        cpr=area(curves[0]),
        cmd=area([abs(1 - value) for value in curves[1]]),
        kept=None if own_faithfulness is None else len(kept),
        kept_faithfulness=own_faithfulness,
        remarks=scores.remarks if isinstance(scores, CircuitScores) else [],
    )


def area(values: Sequence[float]) -> float:
    """Return the area under values over `SHARES`, by the trapezoid rule from the smallest share on.

    >>> round(area([1.0] * 10), 3)
    0.999
    """
    steps = zip(pairwise(SHARES), pairwise(values), strict=True)
    return sum((end - start) * (first + second) / 2 for (start, end), (first, second) in steps)
