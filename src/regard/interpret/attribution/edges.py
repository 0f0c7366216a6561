"""Effects of edges, and attribution patching of heads, with other inputs as corrupted inputs.

    score = mean over corrupted inputs of | effect |

`regard.interpret.edges` has the methods and their papers. The metric is the mean explained value (the
log-probability of the target class) over output steps. Corrupted inputs are other inputs with the same number
of tokens. The authors of EAP and EAP-IG rank edges by absolute values, too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.trial import Trial, read_embedding
from regard.interpret.edges import (
    Edges,
    Metrics,
    Pass,
    ResidualGraph,
    corrupted_pass,
    edge_gradients,
    edge_patching,
    graph_of_probe,
    integrated_edge_gradients,
    score_edges,
    sender_gradients,
)
from regard.viz.subject import ProbeInput

CORRUPTED = 4
"""Corrupted inputs for each explained input."""
Effects = Callable[[Pass, Pass], Edges]
"""Maps what the nodes write and read for a clean and for a corrupted input to the effects of all edges."""


def eap(trial: Trial[Any]) -> Edges:
    graph = graph_of_probe(trial.subject, trial.probe)
    gradients = list(edge_gradients(graph, _metric(trial)))  # the same for all corrupted inputs
    return _mean_effects(trial, graph, lambda clean, corrupted: score_edges(graph, clean, corrupted, gradients))


def eap_ig(trial: Trial[Any]) -> Edges:
    graph = graph_of_probe(trial.subject, trial.probe)
    return _mean_effects(trial, graph, partial(integrated_edge_gradients, graph, metric=_metric(trial)))


def patched_edges(trial: Trial[Any]) -> Edges:
    graph = graph_of_probe(trial.subject, trial.probe)
    return _mean_effects(trial, graph, partial(edge_patching, graph, metric=_metric(trial)))


def random_edges(trial: Trial[Any]) -> Edges:
    """Return uniform random scores of all edges."""
    graph, draws = graph_of_probe(trial.subject, trial.probe), trial.draws("edges")
    return {
        (sender.name, receiver.name): float(torch.rand((), generator=draws))
        for receiver in graph.receivers
        for key in graph.edges[receiver.key]
        for sender in graph.nodes_of_sender(key)
    }


def attribution_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return, by layer, the scores (H,) of attribution patching (Nanda 2023): context difference times
    gradient."""
    sums: dict[str, Tensor] = {}
    graph = graph_of_probe(trial.subject, trial.probe)
    gradients, count = sender_gradients(graph, _metric(trial)), 0
    clean = _clean(graph)
    for corrupted in _corrupted(trial, graph):
        count += 1
        for name in graph.components.heads:
            product = (clean.sent[name] - corrupted.sent[name])[0].double() * gradients[name][0].double()
            effects = graph.components.split(name, product).sum((0, 2)).abs()
            sums[name] = sums.get(name, torch.zeros_like(effects)) + effects
    return {name: values / count for name, values in sums.items()}


def _mean_effects(trial: Trial[Any], graph: ResidualGraph, effects: Effects) -> Edges:
    sums: Edges = {}
    clean, count = _clean(graph), 0
    for corrupted in _corrupted(trial, graph):
        count += 1
        for edge, effect in effects(clean, corrupted).items():
            sums[edge] = sums.get(edge, 0.0) + abs(effect)
    trial.remarks.append(
        f"Absolute effects on the mean log-probability, over {count} corrupted inputs of the same length."
    )
    return {edge: value / count for edge, value in sums.items()}


@torch.no_grad()
def _clean(graph: ResidualGraph) -> Pass:
    return graph.full(1)


def _metric(trial: Trial[Any]) -> Metrics:
    return lambda logits: trial.values(logits).mean(-1)


def _corrupted(trial: Trial[Any], graph: ResidualGraph) -> Iterator[Pass]:
    """Yield what the nodes write and read for other inputs of the same length; raises `InputError` without
    any."""
    count, own = 0, _content(trial.probe)
    for probe in trial.background.prepared:
        content = _content(probe)
        if len(content) == len(own) and not torch.equal(content, own):
            yield corrupted_pass(graph, trial.probe, probe)
            count += 1
        if count == CORRUPTED:
            return
    if not count:
        raise InputError(f"no other input has {len(own)} tokens: give others= with inputs of the same length")


def _content(probe: ProbeInput) -> Tensor:
    """Return the tokens (T,) of an input, or its embedding (T, D) if it has no tokens."""
    return read_embedding(probe) if probe.tokens is None else probe.tokens
