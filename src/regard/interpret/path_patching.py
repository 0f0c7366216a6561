"""Path patching (Goldowsky-Dill et al. 2023; Wang et al. 2023): the effect of a direct path.

    effect = (difference clean - difference patched) / (difference clean - difference corrupted)

The model runs on the clean input. One sender (a head, a feed-forward layer or the embedding) writes its output
for the corrupted input, but only the receivers read this output, through residual connections and norms. All
other senders are frozen to their outputs in the clean run while the input of the receivers is computed;
everything after the receivers is computed anew. A receiver that is after another receiver reads frozen senders,
too. The effect is 0 if the path carries nothing, and 1 if the whole difference between the answers is lost.

Departure: Wang et al. compute the feed-forward layers on the way anew, so that their paths lead through
feed-forward layers; here, feed-forward layers are senders like heads, and are frozen. The direction is the
opposite of that of `regard.patch`, which restores activations of the clean run in the corrupted run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from regard.arguments import public
from regard.attention.names import known_name
from regard.errors import InputError
from regard.interpret.edges import (
    LOGITS,
    Node,
    ResidualGraph,
    corrupted_pass,
    graph_of_probe,
    patched_reads,
    run_patched,
)
from regard.interpret.patching import DifferenceEffects, Metric, compare_answers, input_text, prepare_inputs
from regard.result import signed
from regard.viz.subject import Subject, check_subject


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PathPatchingResult(DifferenceEffects):
    """The effect of each direct path to some receivers, as a fraction of the logit difference between two
    inputs."""

    receivers: list[str]
    heads: dict[str, list[float]]
    """By layer with a direct path to a receiver: the effect of the path from each head."""
    others: dict[str, float]
    """The effect of the paths from the embedding (`inputs`) and from feed-forward layers."""

    def summary(self) -> str:
        effects = {f"{layer}.{head}": v for layer, values in self.heads.items() for head, v in enumerate(values)}
        effects |= self.others
        name = max(effects, key=lambda sender: abs(effects[sender]))
        return f"the path {name} -> {', '.join(self.receivers)} carries the most, {effects[name]:.1%}"

    def table(self) -> RenderableType:
        most = max(map(len, self.heads.values()), default=0)
        table = Table("from", *(f"head {head}" for head in range(most)), "whole", box=None, pad_edge=False)
        first, second = self.answers
        to = ", ".join(self.receivers)
        table.title = f"Lost fraction of {first!r} - {second!r} at output step {self.step}, path to {to}"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            table.add_row(layer, *(signed(value) for value in values))
        for name, value in self.others.items():
            table.add_row(name, *[""] * most, signed(value))
        return Group(table, "All other heads and feed-forward layers are frozen to the clean run.")

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import write_head_table

        first, second = self.answers
        to = ", ".join(self.receivers)
        title = f"{self.clean!r}: fraction of {first!r} - {second!r} lost through paths to {to}"
        values = {**self.heads, **{name: [value] for name, value in self.others.items()}}
        return write_head_table(values, title, path)


@public
def patch_paths(
    subject: Subject[Any],
    clean: Any,
    corrupted: Any,
    receivers: str | Sequence[str] = LOGITS,
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
) -> PathPatchingResult:
    """Patch the direct path from each sender to `receivers` with the corrupted input, and return the effects.

    `receivers`: `logits`, or one or more of `LAYER.HEAD.query`, `LAYER.HEAD.key`, `LAYER.HEAD.value` and names
    of feed-forward layers, which are patched together. Other arguments as in `patch`.

    >>> regard.patch_paths(run, "BCCCB", "BCCCA", "decoder.1.self_attention.0.key")    # doctest: +SKIP

    Raises `InputError` for an unknown receiver, for inputs of different lengths or with the same answer, and
    for a model whose edges cannot be separated.
    """
    check_subject(subject)
    inputs = prepare_inputs(subject, clean, corrupted)
    with torch.no_grad(), subject.patchable.calling_hooks():
        probes = [subject.trial(prepared) for prepared in inputs[:2]]
        if answers is None and metric is None:
            probes = [probe.loss or probe for probe in probes]
        names = [receivers] if isinstance(receivers, str) else list(receivers)
        graph = graph_of_probe(subject, probes[0], names)
        nodes = _receivers(graph, names)
        passes = graph.full(1), corrupted_pass(graph, *probes)
        difference = compare_answers(
            subject,
            inputs,
            [passed.logits[0].float() for passed in passes],
            answers=answers,
            metric=metric,
            step=step,
        )
        reached = {sender for node in nodes for sender in graph.edges[node.key]}
        senders = [sender for sender in graph.senders if sender.key in reached]
        effects: dict[str, float] = {}
        for begin in range(0, len(senders), graph.copies):
            chunk = senders[begin : begin + graph.copies]
            patches = [(copy, nodes) for copy in range(len(chunk))]
            logits = run_patched(graph, patched_reads(graph, *passes, chunk), patches)
            lost = [difference.lost(values.float()) for values in logits]
            effects |= dict(zip((sender.name for sender in chunk), lost, strict=True))
    layers = [key for key in graph.components.heads if key in reached]
    return PathPatchingResult(
        clean=input_text(subject, clean, inputs.clean),
        corrupted=input_text(subject, corrupted, inputs.corrupted),
        answers=difference.answers,
        difference_clean=difference.clean,
        difference_corrupted=difference.corrupted,
        step=difference.step,
        receivers=[node.name for node in nodes],
        heads={layer: [effects[node.name] for node in graph.nodes_of_sender(layer)] for layer in layers},
        others={node.name: effects[node.name] for node in senders if node.head is None},
    )


def _receivers(graph: ResidualGraph, names: Sequence[str]) -> list[Node]:
    known = {node.name: node for node in graph.receivers}
    nodes = [known[known_name(name, known, "node")] for name in names]
    if not nodes or (len(nodes) > 1 and any(node.key == LOGITS for node in nodes)):
        raise InputError(
            f"receivers={list(names)} cannot be patched together: give logits alone, or other receivers"
        )
    return nodes
