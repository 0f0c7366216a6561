"""The effect of each edge of a model: exact by edge patching, or approximated by gradients.

    edge patching    metric(clean) - metric(clean, with the corrupted output of the sender in one receiver)
    EAP              (sender clean - sender corrupted) . gradient of the metric at the input of the receiver
    EAP-IG           the same, with the mean gradient over m inputs between the corrupted and the clean input

An effect is positive if the metric falls when the edge is corrupted. EAP is edge attribution patching (Syed,
Rager and Conmy 2023; after Nanda 2023, "Attribution patching"). EAP-IG is that of Hanna et al. 2024, "Have faith
in faithfulness". Step k = 0 to m - 1 reads the embedding `corrupted + k / m (clean -
corrupted)`, as the authors' code does.

Departure from both papers: the gradient is that of the whole direct path, with the norms on it, so that the
methods apply to models that normalize after each sum. In other models this is the gradient before the norm, as
in the papers. Position embeddings are the same for both inputs and belong to no sender.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.interpret.residual_graph import (
    INPUTS,
    LOGITS,
    Change,
    Node,
    Pass,
    ResidualGraph,
    Values,
    list_gradients,
    make_leaves,
    unchanged,
)

Gradients = tuple[Sequence[Node], Mapping[str, Tensor]]
"""N receivers, and, by key of a sender, the gradients (N, T, any) of the metric through one receiver each."""
Metrics = Callable[[Tensor], Tensor]
"""Maps the logits (N, T, C) of N copies of an input to one number each, (N,)."""
Edges = dict[tuple[str, str], float]
"""By sender and receiver: the effect, in the unit of the metric."""
STEPS = 5
"""Number of interpolated inputs of EAP-IG, as in the authors' examples."""


def edge_attribution_patching(graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metrics) -> Edges:
    return score_edges(graph, clean, corrupted, edge_gradients(graph, metric))


def integrated_edge_gradients(
    graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metrics, *, steps: int = STEPS
) -> Edges:
    """Return the EAP-IG score of each edge over `steps` interpolated embeddings."""
    start, end = corrupted.sent[INPUTS], clean.sent[INPUTS]
    shares = (torch.arange(steps, dtype=start.dtype, device=start.device) / steps).view(
        -1, *[1] * (start.dim() - 1)
    )
    embeddings = start + shares * (end - start)
    gradients = edge_gradients(
        graph, metric, lambda name, value: embeddings.clone() if name == INPUTS else value, points=steps
    )
    return score_edges(graph, clean, corrupted, gradients)


def score_edges(graph: ResidualGraph, clean: Pass, corrupted: Pass, gradients: Iterable[Gradients]) -> Edges:
    """Return, for each edge, the difference of the sender times the mean gradient over points."""
    sums: Edges = {}
    differences = {key: (clean.sent[key] - corrupted.sent[key])[0].double() for key in clean.sent}
    for receivers, by_sender in gradients:
        for key, gradient in by_sender.items():
            senders = graph.nodes_of_sender(key)
            products = (differences[key] * gradient.double()).sum(1).unflatten(-1, (len(senders), -1)).sum(-1)
            for receiver, row in zip(receivers, products.tolist(), strict=True):
                if key in graph.edges[receiver.key]:
                    for sender, value in zip(senders, row, strict=True):
                        edge = sender.name, receiver.name
                        sums[edge] = sums.get(edge, 0.0) + value
    return sums


def sender_gradients(graph: ResidualGraph, metric: Metrics) -> dict[str, Tensor]:
    with torch.enable_grad():
        passed = graph.full(1, send=lambda name, value: value.requires_grad_())
        gradients = list_gradients(metric(passed.logits).sum(), passed.sent)
    return _filled(passed.sent, gradients)


def edge_gradients(
    graph: ResidualGraph, metric: Metrics, send: Change = unchanged, *, points: int = 1
) -> Iterator[Gradients]:
    """Yield N receivers, and, by key of a sender, the gradients (N, T, any) of the metric through one receiver
    each.

    `send` may change the input of the pass in which the gradient is computed, in `points` copies. Each receiver
    is yielded once for each of these points, with the gradient divided by their number.
    """
    with torch.enable_grad():
        passed = graph.full(points, send=send, receive=lambda name, value: value.requires_grad_())
        total = metric(passed.logits).sum() / points
        at_receivers = _filled(passed.received, list_gradients(total, passed.received))
    values = {key: value.detach() for key, value in passed.sent.items()}
    pairs = [(node, point) for node in graph.receivers for point in range(points)]
    for begin in range(0, len(pairs), graph.copies):
        chunk = pairs[begin : begin + graph.copies]
        chosen = [point for _, point in chunk]
        # The weight of what each receiver reads is zero in all copies but its own. One product for each tensor is
        # faster than one for each receiver, whose gradients would be tensors of all copies.
        weights = {
            key: torch.zeros(len(chunk), *value.shape[1:]).to(value) for key, value in at_receivers.items()
        }
        to_logits = torch.zeros(len(chunk)).to(total)
        for copy, (node, point) in enumerate(chunk):
            if node.key == LOGITS:
                to_logits[copy] = 1 / points
            else:
                own = slice(None) if node.head is None else (slice(None), node.head)
                weights[node.key][copy][own] = at_receivers[node.key][point][own]
        with torch.enable_grad():
            leaves = make_leaves({key: value[chosen] for key, value in values.items()}, len(chunk))
            direct = graph.direct(leaves, len(chunk))
            sums = [(direct.received[key] * weight).sum() for key, weight in weights.items()]
            sums.append((metric(direct.logits) * to_logits).sum())
            gradients = list_gradients(torch.stack(sums).sum(), leaves)
        reached = {key for node, _ in chunk for key in graph.edges[node.key]}
        filled = _filled(leaves, gradients)
        yield [node for node, _ in chunk], {key: filled[key] for key in filled if key in reached}


def _filled(values: Values, gradients: Sequence[Tensor | None]) -> dict[str, Tensor]:
    return {
        key: torch.zeros_like(value) if gradient is None else gradient.detach()
        for (key, value), gradient in zip(values.items(), gradients, strict=True)
    }


@torch.no_grad()
def edge_patching(graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metrics) -> Edges:
    """Return the exact effect of each edge: one copy of the input in a pass of the model for each edge.

    An edge that does not change what its receiver reads has the effect 0, without a pass.
    """
    whole, effects = float(metric(clean.logits)), Edges()
    for begin in range(0, len(graph.senders), graph.copies):
        senders = graph.senders[begin : begin + graph.copies]
        reads = patched_reads(graph, clean, corrupted, senders)
        changed = _changed_reads(reads, patched_reads(graph, clean, clean, senders))
        pairs = []
        for receiver in graph.receivers:
            for copy, sender in enumerate(senders):
                if sender.key in graph.edges[receiver.key]:
                    effects[sender.name, receiver.name] = 0.0
                    if changed[receiver.key][copy, receiver.head or 0]:
                        pairs.append((copy, receiver))
        for first in range(0, len(pairs), graph.copies):
            chunk = pairs[first : first + graph.copies]
            values = metric(run_patched(graph, reads, [(copy, [receiver]) for copy, receiver in chunk]))
            for (copy, receiver), value in zip(chunk, values.tolist(), strict=True):
                effects[senders[copy].name, receiver.name] = whole - value
    return effects


def _changed_reads(first: Pass, second: Pass) -> dict[str, np.ndarray]:
    """Return, by key of a receiver, in which copies its heads read different values, (N, H); H is 1 without
    heads."""
    reads = {LOGITS: (first.logits, second.logits)}
    reads |= {key: (value, second.received[key]) for key, value in first.received.items()}
    differs = {key: (one != other).any(-1).any(1).cpu().numpy() for key, (one, other) in reads.items()}
    return {key: values.reshape(len(values), -1) for key, values in differs.items()}


def patched_reads(graph: ResidualGraph, clean: Pass, corrupted: Pass, senders: Sequence[Node]) -> Pass:
    """Return what all receivers read if, in copy n, sender n alone writes its corrupted output."""
    count = len(senders)
    values = {key: value.expand(count, *value.shape[1:]).clone() for key, value in clean.sent.items()}
    for copy, sender in enumerate(senders):
        source = graph.part(corrupted.sent[sender.key][0], sender)
        graph.part(values[sender.key][copy], sender).copy_(source)
    return graph.direct(values, count)


def run_patched(graph: ResidualGraph, reads: Pass, patches: Sequence[tuple[int, Sequence[Node]]]) -> Tensor:
    """Return the logits (N, T, C) of N copies, in each of which some receivers read what they read in `reads`.

    `patches`: for each copy, the copy of `reads` and the receivers.
    """

    def receive(name: str, value: Tensor) -> Tensor:
        for copy, (source, receivers) in enumerate(patches):
            for receiver in receivers:
                if receiver.key == name:
                    part = slice(None) if receiver.head is None else (slice(None), receiver.head)
                    value[copy][part] = reads.received[name][source][part]
        return value

    logits = graph.full(len(patches), receive=receive).logits.clone()
    for copy, (source, receivers) in enumerate(patches):
        if any(receiver.key == LOGITS for receiver in receivers):
            logits[copy] = reads.logits[source]
    return logits
