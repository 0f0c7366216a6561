"""The residual graph of a subject on one input, and what its nodes write and read for two inputs."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.residual_graph import Pass, ResidualGraph
from regard.viz import Subject
from regard.viz.subject import ProbeInput


def graph_of(subject: Subject[Any], prepared: Any) -> ResidualGraph:
    """Return the graph of a subject on an input in the form of `Subject.prepare`.

    Raises `InputError` for a model without an embedding, and for a model with parts that cannot be separated.
    """
    probe = subject.trial(prepared)
    if probe is None:
        raise InputError(
            f"{subject.name} has no outputs that depend on an embedding of its inputs: choose a model with token"
            f" inputs and an output layer"
        )
    return graph_of_probe(subject, probe)


def graph_of_probe(subject: Subject[Any], probe: ProbeInput) -> ResidualGraph:
    """Return the graph of a subject on an input that can be run; errors as in `graph_of`."""
    components = subject.components
    left_out = {**components.left_out, **components.inputs_left_out, **components.feed_forward_left_out}
    if left_out or not components.heads:
        name, reason = next(iter(left_out.items()), (subject.name, "the model has no attention layer"))
        raise InputError(f"{name} has no separate edges, because {reason}: choose another model")
    return ResidualGraph(
        probe.run, probe.embedding, components.heads, components.head_inputs, components.feed_forward
    )


@torch.no_grad()
def read_passes(subject: Subject[Any], graph: ResidualGraph, clean: Any, corrupted: Any) -> tuple[Pass, Pass]:
    """Return what the nodes write and read for a clean and a corrupted input of the same length.

    An encoder-decoder reads the target of the clean input in both runs. Raises `InputError` if the nodes of the
    graph do not account for all that the model reads.
    """
    first, second = subject.trial(clean), subject.trial(corrupted)
    assert first is not None and second is not None
    return graph.full(1), corrupted_pass(graph, first, second)


@torch.no_grad()
def corrupted_pass(graph: ResidualGraph, clean: ProbeInput, corrupted: ProbeInput) -> Pass:
    """Return what the nodes write and read for another input of the same length; errors as in `read_passes`."""

    def run(count: int) -> Tensor:
        if clean.run_tokens is None or corrupted.tokens is None:
            return corrupted.run(count)
        return clean.run_tokens(corrupted.tokens.expand(count, -1))

    passed = dataclasses.replace(graph, run=run).full(1)
    graph.check(passed)
    return passed
