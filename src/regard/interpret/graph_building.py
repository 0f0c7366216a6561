"""The residual graph of a subject on one input, and what its nodes write and read for two inputs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.activations.head_inputs import KINDS
from regard.errors import InputError
from regard.interpret.residual_graph import Pass, ResidualGraph
from regard.viz.subject import ProbeInput, Subject


def graph_of_probe(
    subject: Subject[Any], probe: ProbeInput, receivers: Sequence[str] | None = None
) -> ResidualGraph:
    """Return the graph of a subject on an input that can be run.

    `receivers`: the nodes of interest (None: all). The graph has inputs of heads only if one is among these.
    Raises `InputError` for a model with parts that cannot be separated.
    """
    components = subject.components
    heads = receivers is None or any(name.endswith(tuple(f".{kind}" for kind in KINDS)) for name in receivers)
    head_inputs, all_left_out = components.find_inputs() if heads else ({}, {})
    missing = {**components.left_out, **components.feed_forward_left_out}
    left_out = dict(missing)
    for name, reason in all_left_out.items():
        if receivers is None or any(receiver.startswith(f"{name}.") for receiver in receivers):
            left_out[name] = reason
    if left_out or not components.heads:
        name, reason = next(iter(left_out.items()), (subject.name, "no attention was recorded in it"))
        others = "choose the receiver logits" if not missing and components.heads else ""
        raise InputError(f"{name} has no separate edges, because {reason}: {others or 'choose another model'}")
    known = {name: inputs for name, inputs in head_inputs.items() if name not in all_left_out}
    return ResidualGraph(probe.run, probe.embedding, components.heads, known, components.feed_forward)


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
