"""The effect of each edge of a model: exact by edge patching, or approximated by gradients.

    edge patching    metric(clean) - metric(clean, with the corrupted output of the sender in one receiver)
    EAP              (sender clean - sender corrupted) . gradient of the metric at the input of the receiver
    EAP-IG           the same, with the mean gradient over m inputs between the corrupted and the clean input

An effect is positive if the metric falls when the edge is corrupted. EAP is edge attribution patching (Syed,
Rager and Conmy 2023, section 2; after Nanda 2023, "Attribution patching"). EAP-IG is that of Hanna et al. 2024,
"Have faith in faithfulness", section 3. Step k = 0 to m - 1 reads the embedding `corrupted + k / m (clean -
corrupted)`, as the authors' code does; the paper counts k from 1 to m.

Departure from both papers: the gradient is that of the whole direct path, with the norms on it, so that the
methods apply to models that normalize after each sum. In other models this is the gradient before the norm, as
in the papers. Position embeddings are the same for both inputs and belong to no sender.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from regard.interpret.answer_difference import Metric
from regard.interpret.residual_graph import (
    COPIES,
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

Edges = dict[tuple[str, str], float]
"""By sender and receiver: the effect, in the unit of the metric."""
STEPS = 5
"""Number of interpolated inputs of EAP-IG, as in the authors' examples."""


def edge_attribution_patching(graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metric) -> Edges:
    """Return the EAP score of each edge: one pass with a gradient for all edges."""
    return _score(graph, clean, corrupted, [edge_gradients(graph, metric)])


def integrated_edge_gradients(
    graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metric, *, steps: int = STEPS
) -> Edges:
    """Return the EAP-IG score of each edge over `steps` interpolated embeddings."""
    start, end = corrupted.sent[INPUTS], clean.sent[INPUTS]

    def interpolate(step: int) -> Change:
        embedding = start + step / steps * (end - start)
        return lambda name, value: embedding.clone() if name == INPUTS else value

    points = (edge_gradients(graph, metric, interpolate(step)) for step in range(steps))
    return _score(graph, clean, corrupted, points)


def _score(
    graph: ResidualGraph,
    clean: Pass,
    corrupted: Pass,
    points: "Iterator[_Gradients] | Sequence[_Gradients]",
) -> Edges:
    """Return the mean over points of the products of differences and gradients."""
    differences = {key: (clean.sent[key] - corrupted.sent[key])[0].double() for key in clean.sent}
    sums: Edges = {}
    count = 0
    for gradients in points:
        count += 1
        for receiver, by_sender in gradients:
            for key, gradient in by_sender.items():
                product = differences[key] * gradient.double()
                for sender in graph.nodes_of_sender(key):
                    value = float(graph.part(product, sender).sum())
                    edge = sender.name, receiver.name
                    sums[edge] = sums.get(edge, 0.0) + value
    return {edge: value / count for edge, value in sums.items()}


_Gradients = Iterator[tuple[Node, Mapping[str, Tensor]]]


def sender_gradients(graph: ResidualGraph, metric: Metric) -> dict[str, Tensor]:
    """Return the gradient (1, T, any) of the metric with respect to what each sender writes, over all paths."""
    with torch.enable_grad():
        passed = graph.full(1, send=lambda name, value: value.requires_grad_())
        found = list_gradients(metric(passed.logits[0]), passed.sent)
    return {
        key: torch.zeros_like(value) if gradient is None else gradient
        for (key, value), gradient in zip(passed.sent.items(), found, strict=True)
    }


def edge_gradients(graph: ResidualGraph, metric: Metric, send: Change = unchanged) -> _Gradients:
    """Yield each receiver, with the gradient of the metric through this receiver alone, by key of the sender
    (T, any).

    `send` may change the input of the pass in which the gradient is computed.
    """
    with torch.enable_grad():
        passed = graph.full(1, send=send, receive=lambda name, value: value.requires_grad_())
        total = metric(passed.logits[0])
        found = list_gradients(total, passed.received)
    at_receivers = {
        key: value.detach() for key, value in zip(passed.received, found, strict=True) if value is not None
    }
    values = {key: value.detach() for key, value in passed.sent.items()}
    receivers = [node for node in graph.receivers if node.key == LOGITS or node.key in at_receivers]
    for begin in range(0, len(receivers), COPIES):
        chunk = receivers[begin : begin + COPIES]
        gradients = _direct(graph, values, at_receivers, chunk, metric)
        for copy, node in enumerate(chunk):
            yield node, {key: gradients[key][copy] for key in graph.edges[node.key]}


def _direct(
    graph: ResidualGraph, values: Values, at_receivers: Values, receivers: Sequence[Node], metric: Metric
) -> dict[str, Tensor]:
    """Return, by key of a sender, the gradients (N, T, any) of the metric through one receiver per copy."""
    with torch.enable_grad():
        leaves = make_leaves(values, len(receivers))
        passed = graph.direct(leaves, len(receivers))
        total = torch.zeros((), dtype=passed.logits.dtype, device=passed.logits.device)
        for copy, node in enumerate(receivers):
            if node.key == LOGITS:
                total = total + metric(passed.logits[copy])
            else:
                read, gradient = passed.received[node.key][copy], at_receivers[node.key][0]
                if node.head is not None:
                    read, gradient = read[:, node.head], gradient[:, node.head]
                total = total + (read * gradient).sum()
        found = list_gradients(total, leaves)
    return {
        key: torch.zeros_like(leaf) if gradient is None else gradient
        for (key, leaf), gradient in zip(leaves.items(), found, strict=True)
    }


@torch.no_grad()
def edge_patching(graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metric) -> Edges:
    """Return the exact effect of each edge: one pass of the model for each edge."""
    whole, effects = float(metric(clean.logits[0])), Edges()
    for begin in range(0, len(graph.senders), COPIES):
        senders = graph.senders[begin : begin + COPIES]
        reads = patched_reads(graph, clean, corrupted, senders)
        for receiver in graph.receivers:
            copies = [copy for copy, sender in enumerate(senders) if sender.key in graph.edges[receiver.key]]
            if copies:
                logits = run_patched(graph, reads, [receiver], copies)
                for copy, values in zip(copies, logits, strict=True):
                    effects[senders[copy].name, receiver.name] = whole - float(metric(values))
    return effects


def patched_reads(graph: ResidualGraph, clean: Pass, corrupted: Pass, senders: Sequence[Node]) -> Pass:
    """Return what all receivers read if, in copy n, sender n alone writes its corrupted output."""
    count = len(senders)
    values = {key: value.expand(count, *value.shape[1:]).clone() for key, value in clean.sent.items()}
    for copy, sender in enumerate(senders):
        source = graph.part(corrupted.sent[sender.key][0], sender)
        graph.part(values[sender.key][copy], sender).copy_(source)
    return graph.direct(values, count)


def run_patched(graph: ResidualGraph, reads: Pass, receivers: Sequence[Node], copies: Sequence[int]) -> Tensor:
    """Return the logits (N, T, C) of the model if `receivers` read what they read in some copies of `reads`."""
    if [receiver.key for receiver in receivers] == [LOGITS]:
        return reads.logits[list(copies)]

    def receive(name: str, value: Tensor) -> Tensor:
        for receiver in receivers:
            if receiver.key == name:
                source = reads.received[name][list(copies)]
                if receiver.head is None:
                    return source
                value[:, :, receiver.head] = source[:, :, receiver.head]
        return value

    return graph.full(len(copies), receive=receive).logits
