"""Interchange interventions: a component of a model takes its output from a run on another input.

A trained model follows a compiled program if, for every component, an interchange changes its answers as the same
interchange changes those of the compiled model (Geiger et al. 2022, "Inducing Causal Structure for Interpretable
Neural Networks", section 3). Components are heads and feed-forward layers, named alike in both models. A
component outside the circuit changes no answer of the compiled model, so it must change none of the trained model
(strictness: Gupta et al. 2024, "InterpBench", section 3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from regard.activations.components import find_components, replace_outputs
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD
from regard.models.base import TaskModel
from regard.tasks.batch import IGNORE
from regard_lab.programs.compiler import Compiled

MARGIN = 3.0
"""Smallest difference of the two largest logits of a compiled model at which its answer counts. An interchange
can leave it without an answer."""


class InterchangeNode(NamedTuple):
    """A head of an attention layer, or a feed-forward layer (head None)."""

    layer: str
    head: int | None


class Texts(NamedTuple):
    """All texts of one length: what the model reads, and the answers."""

    reads: tuple[Tensor, ...]  # (N, T) inputs; source and decoder input of an encoder-decoder
    answers: Tensor  # (N, Tq); IGNORE without an answer

    def pick(self, rows: Tensor) -> "Texts":
        return Texts(tuple(part[rows] for part in self.reads), self.answers[rows])


def all_texts(compiled: Compiled) -> list[Texts]:
    """Return all texts of a program by length, with their answers."""
    program, task = compiled.program, cast(Any, compiled.task)
    groups = []
    for length in range(1, program.longest + 1):
        texts = program.texts(length)
        if program.family == "encoder-decoder":
            pairs = [task.known(text) for text in texts]
            batch = PairBatch(
                collate([task.source_vocabulary.encode(pair.source) for pair in pairs]),
                collate([task.target_vocabulary.encode(pair.target) for pair in pairs]),
            )
            groups.append(
                Texts((batch.source, batch.target_in), batch.target.masked_fill(batch.target == PAD, IGNORE))
            )
        else:
            inputs = torch.cat([task.parse(text) for text in texts])
            groups.append(Texts((inputs,), task.answer(inputs)))
    return groups


def find_nodes(model: TaskModel) -> list[InterchangeNode]:
    """Return all heads and feed-forward layers of a model."""
    components = find_components(model)
    heads = [
        InterchangeNode(layer, head)
        for layer, contexts in components.heads.items()
        for head in range(contexts.heads)
    ]
    return heads + [InterchangeNode(layer, None) for layer in components.feed_forward]


Outputs = dict[str, Tensor]
"""By name of the layer: contexts (N, Tq, H Dv) of its heads, or states (N, T, D) of a feed-forward layer."""
Masks = Mapping[InterchangeNode, Tensor]
"""For each node: the rows (N,) bool that take its output from the other run."""


def run(model: TaskModel, texts: Texts) -> Tensor:
    """Return the logits (N, Tq, C)."""
    if len(texts.reads) == 1:
        logits: Tensor = model(texts.reads[0])
        return logits
    source, target = texts.reads
    answers: Tensor = model(source, source != PAD, target)
    return answers


def run_recorded(model: TaskModel, texts: Texts) -> tuple[Tensor, Outputs]:
    """Return the logits, and the output of each component."""
    outputs: Outputs = {}

    def keep(name: str, output: Tensor) -> Tensor:
        outputs[name] = output
        return output

    components = find_components(model)
    with components.replace_contexts(keep), replace_outputs(components.feed_forward, keep):
        return run(model, texts), outputs


def run_interchanged(model: TaskModel, texts: Texts, others: Outputs, masks: Masks) -> Tensor:
    """Return the logits if the nodes in `masks` take their outputs from another run."""
    components = find_components(model)

    def exchange(name: str, output: Tensor) -> Tensor:
        chosen = {node.head: rows for node, rows in masks.items() if node.layer == name}
        if not chosen:
            return output
        heads = components.heads[name].heads if name in components.heads else 1
        mask = torch.zeros(len(output), heads, dtype=torch.bool)
        for head, rows in chosen.items():
            mask[:, head or 0] = rows
        parts = (output.unflatten(-1, (heads, -1)), others[name].unflatten(-1, (heads, -1)))
        return torch.where(mask[:, None, :, None], parts[1], parts[0]).flatten(-2)

    with components.replace_contexts(exchange), replace_outputs(components.feed_forward, exchange):
        return run(model, texts)


def answers_of(compiled: Compiled, logits: Tensor, texts: Texts) -> Tensor:
    largest = logits.topk(2, -1)
    unclear = (largest.values[..., 0] - largest.values[..., 1] < MARGIN) | (texts.answers == IGNORE)
    return largest.indices[..., 0].masked_fill(unclear, IGNORE)


class InterchangeAgreement(NamedTuple):
    """How well a trained model follows a compiled program, over drawn pairs of texts."""

    accuracy: float  # fraction of answers that equal those of the program
    interchange: float  # lowest fraction of answers that agree after an interchange of a node in the circuit
    outside: float  # highest fraction of answers that an interchange of a node outside the circuit changes


@torch.no_grad()
def measure_agreement(
    compiled: Compiled,
    model: TaskModel,
    groups: Sequence[Texts],
    circuit: Sequence[InterchangeNode],
    pairs: int,
    generator: torch.Generator,
) -> InterchangeAgreement:
    """Return the agreement over `pairs` pairs of texts of equal length for each node.

    Lengths are drawn in proportion to the number of their texts.
    """
    total = sum(len(group.answers) for group in groups)
    right: dict[InterchangeNode, list[Tensor]] = {node: [] for node in find_nodes(model)}
    behaviour = []
    for group in groups:
        count = max(1, round(pairs * len(group.answers) / total))
        base, other = (
            group.pick(torch.randint(len(group.answers), (count,), generator=generator)) for _ in range(2)
        )
        behaviour.append((run(model, base).argmax(-1) == base.answers)[base.answers != IGNORE])
        sources = {
            name: run_recorded(net, other)[1] for name, net in (("own", model), ("compiled", compiled.model))
        }
        everywhere = torch.ones(count, dtype=torch.bool)
        for node in right:
            masks = {node: everywhere}
            wanted = answers_of(
                compiled, run_interchanged(compiled.model, base, sources["compiled"], masks), base
            )
            answers = run_interchanged(model, base, sources["own"], masks).argmax(-1)
            right[node].append((answers == wanted)[wanted != IGNORE])
    means = {node: float(torch.cat(parts).double().mean()) for node, parts in right.items()}
    return InterchangeAgreement(
        accuracy=float(torch.cat(behaviour).double().mean()),
        interchange=min((means[node] for node in circuit), default=1.0),
        outside=max((1 - mean for node, mean in means.items() if node not in circuit), default=0.0),
    )
