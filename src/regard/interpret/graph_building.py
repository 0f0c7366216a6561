"""The residual graph of a subject on one input, and what its nodes write and read for two inputs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.head_inputs import KINDS
from regard.errors import InputError
from regard.interpret.residual_graph import Pass, ResidualGraph
from regard.viz import Subject
from regard.viz.subject import ProbeInput


def graph_of(subject: Subject[Any], prepared: Any) -> ResidualGraph:
    """Return the graph of a subject on an input in the form of `Subject.prepare`.

    Raises `InputError` for a model without an embedding, and for a model with parts that cannot be separated.
    """
    return graph_of_probe(subject, subject.trial(prepared))


def graph_of_probe(subject: Subject[Any], probe: ProbeInput, receivers: Sequence[str] | None = None) -> ResidualGraph:
    """Return the graph of a subject on an input that can be run; errors as in `graph_of`.

    `receivers`: the nodes of interest (None: all). Without a head among them, the graph has no inputs of heads, and
    the model's queries, keys and values need not be separable.
    """
    components = subject.components
    heads = receivers is None or any(name.endswith(tuple(f".{kind}" for kind in KINDS)) for name in receivers)
    head_inputs, inputs_left_out = components.find_inputs() if heads else ({}, {})
    if receivers is not None:
        inputs_left_out = {
            name: reason
            for name, reason in inputs_left_out.items()
            if any(receiver.startswith(f"{name}.") for receiver in receivers)
        }
    left_out = {**components.left_out, **inputs_left_out}
    if left_out or not components.heads:
        name, reason = next(iter(left_out.items()), (subject.name, "the model has no attention layer"))
        others = "choose the receiver logits" if not components.left_out and components.heads else ""
        raise InputError(f"{name} has no separate edges, because {reason}: {others or 'choose another model'}")
    return ResidualGraph(probe.run, probe.embedding, components.heads, head_inputs, components.feed_forward)


@torch.no_grad()
def corrupted_pass(graph: ResidualGraph, clean: ProbeInput, corrupted: ProbeInput) -> Pass:
    """Return what the nodes write and read for another input of the same length.

    An encoder-decoder reads the target of the clean input in both runs. Raises `InputError` if the nodes of the
    graph do not account for all that the model reads.
    """

    def run(count: int) -> Tensor:
        if clean.run_tokens is None or corrupted.tokens is None:
            return corrupted.run(count)
        return clean.run_tokens(corrupted.tokens.expand(count, -1))

    passed = dataclasses.replace(graph, run=run).full(1)
    graph.check(passed)
    return passed
