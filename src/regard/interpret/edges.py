"""The residual stream of a model as a graph, and the effect of each edge: exact, or approximated by gradients.

    senders      `inputs` (the embedding), each head (`LAYER.HEAD`), each feed-forward layer
    receivers    query, key and value input of each head (`LAYER.HEAD.query`), feed-forward layers, `logits`

An edge is the direct path from a sender to a receiver: residual connections, norms and projections, without
another sender (Elhage et al. 2021; Goldowsky-Dill et al. 2023). In a *direct pass* the output of every sender
is set to a known value, so that each receiver is a function of the senders on its direct paths only. This
function contains the norms. Therefore, edges are defined for models that normalize after each sum, too.

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

Letters: N copies of an input, T steps, H heads, d width of a head, D width of the model, C classes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.activations.components import KINDS, Change, Components, HeadInputs, replace_outputs
from regard.errors import InputError
from regard.interpret.attribution.trial import Trial, change_embedding, read_pass
from regard.viz.subject import ProbeInput, Subject

INPUTS = "inputs"  # Name of the sender that is the embedding of the input
LOGITS = "logits"  # Name of the receiver that is the output of the model
MOST_COPIES = 256  # Largest number of copies of an input in one pass. More copies save little time.
MOST_NUMBERS = 2**25
"""Largest number of logits in one pass, which limits the memory of a model with a large vocabulary to about 1 GB."""
AGREEMENT = 1e-3
"""Largest accepted difference between direct pass and model, as a fraction of the largest value (at least 1)."""
STEPS = 5  # Number of interpolated inputs of EAP-IG, as in the authors' examples
CORRUPTED = 4  # Corrupted inputs for each explained input
Values = Mapping[str, Tensor]
"""By name of a module or layer: what it writes, (N, T, D) or (N, T, H d), or what it reads, (N, T, H, d)."""
Metrics = Callable[[Tensor], Tensor]  # Maps the logits (N, T, C) of N copies of an input to one number each, (N,)
Edges = dict[tuple[str, str], float]  # By sender and receiver: the effect, in the unit of the metric


class Node(NamedTuple):
    """A sender or receiver: a place in the tensors of a pass."""

    name: str
    key: str  # Name of the tensor in `Values`
    head: int | None = None


class Pass(NamedTuple):
    """What the senders wrote and the receivers read in one pass, and its logits (N, T, C)."""

    sent: dict[str, Tensor]
    received: dict[str, Tensor]
    logits: Tensor

    @property
    def read(self) -> dict[str, Tensor]:
        """What all receivers read, with the logits."""
        return {**self.received, LOGITS: self.logits}


def unchanged(name: str, value: Tensor) -> Tensor:
    return value


@dataclass(frozen=True)
class ResidualGraph:
    """The senders and receivers of a model on one input."""

    run: Callable[[int], Tensor]  # Feeds N copies of the input to the model and returns logits (N, T, C)
    embedding: nn.Module
    components: Components
    head_inputs: Mapping[str, HeadInputs]

    @property
    def copies(self) -> int:
        return max(1, min(MOST_COPIES, MOST_NUMBERS // self._order.logits.numel()))

    @cached_property
    def senders(self) -> list[Node]:
        """All senders in the order of the forward pass."""
        return [node for key in self._order.sent for node in self.nodes_of_sender(key)]

    @cached_property
    def receivers(self) -> list[Node]:
        """All receivers in the order of the forward pass; `logits` is the last."""
        nodes: list[Node] = []
        for key in self._order.received:
            layer, _, kind = key.rpartition(".")
            if layer in self.head_inputs and kind in KINDS:
                heads = range(self.head_inputs[layer].heads)
                nodes += [Node(f"{layer}.{head}.{kind}", key, head) for head in heads]
            else:
                nodes.append(Node(key, key))
        return [*nodes, Node(LOGITS, LOGITS)]

    @cached_property
    def edges(self) -> dict[str, list[str]]:
        """By key of a receiver: the keys of the senders that have a direct path to it."""
        with torch.enable_grad():
            leaves = make_leaves(self._order.sent, 1)
            reads = self.direct(leaves, 1).read
            return {
                key: [
                    sender
                    for sender, gradient in zip(leaves, list_gradients(value.sum(), leaves), strict=True)
                    if gradient is not None
                ]
                for key, value in reads.items()
            }

    @cached_property
    def all_edges(self) -> list[tuple[str, str]]:
        """All edges, by sender and receiver, in the order of the receivers."""
        return [
            (sender.name, receiver.name)
            for receiver in self.receivers
            for key in self.edges[receiver.key]
            for sender in self.nodes_of_sender(key)
        ]

    @cached_property
    def _order(self) -> Pass:
        with torch.no_grad():
            return self.full(1)

    def nodes_of_sender(self, key: str) -> list[Node]:
        """Return the heads of a layer, or the only sender with this key."""
        if key not in self.components.heads:
            return [Node(key, key)]
        return [Node(f"{key}.{head}", key, head) for head in range(self.components.heads[key].heads)]

    def part(self, value: Tensor, sender: Node) -> Tensor:
        if sender.head is None:
            return value
        return self.components.split(sender.key, value)[..., sender.head, :]

    def full(self, count: int, *, send: Change = unchanged, receive: Change = unchanged) -> Pass:
        """Run the model on N copies; `send` and `receive` may change what is written and read."""
        sent: dict[str, Tensor] = {}
        received: dict[str, Tensor] = {}

        def pass_on(values: dict[str, Tensor], change: Change, name: str, value: Tensor) -> Tensor:
            if name in values:
                raise InputError(
                    f"{name} runs more than once in a pass, so its edges cannot be separated: choose a model "
                    f"that runs each layer once"
                )
            if value.dim() > 2 and len(value) != count:
                raise InputError(
                    f"{name} runs on {len(value) // count} windows of one input, so its edges cannot be "
                    "separated: choose attribution of inputs"
                )
            # Without a copy, the gradient would contain other paths from the same tensor. OPT joins copies and steps.
            steps = value.clone() if value.dim() > 2 else value.clone().unflatten(0, (count, -1))
            values[name] = change(name, steps)
            return values[name].reshape_as(value)

        with self._watch(partial(pass_on, sent, send), partial(pass_on, received, receive)):
            logits = self.run(count)
        return Pass(sent, received, logits)

    def direct(self, values: Values, count: int) -> Pass:
        """Run a direct pass of N copies: each sender writes its value (1 or N, T, any)."""

        def receive(name: str, value: Tensor) -> Tensor:
            reads[name] = value
            return value.detach()

        reads: dict[str, Tensor] = {}
        passed = self.full(
            count, send=lambda name, value: values[name].expand(count, *value.shape[1:]), receive=receive
        )
        return passed._replace(received=reads)

    @torch.no_grad()
    def check(self, other: Pass) -> None:
        """Raise `InputError` unless a direct pass with the values of another pass reads the same as that pass."""
        expected = other.read
        for name, value in self.direct(other.sent, 1).read.items():
            largest = float((value - expected[name]).abs().max())
            if not largest <= AGREEMENT * max(1.0, float(expected[name].abs().max())):
                raise InputError(
                    f"{name} reads from other parts of the model than embedding, heads and feed-forward layers "
                    f"(a difference of {largest:.3g}): its edges cannot be separated"
                )

    @contextmanager
    def _watch(self, send: Change, receive: Change) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(change_embedding(self.embedding, partial(send, INPUTS)))
            stack.enter_context(self.components.replace_contexts(send))
            for name, inputs in self.head_inputs.items():
                change = lambda kind, value, name=name: receive(f"{name}.{kind}", value)  # noqa: E731
                stack.enter_context(inputs.replace(change))
            for name, module in self.components.feed_forward.items():
                hook = lambda module, args, name=name: (receive(name, args[0]), *args[1:])  # noqa: E731
                stack.callback(module.register_forward_pre_hook(hook).remove)
            # Falcon adds to the output in place.
            written = lambda name, value: send(name, value).clone()  # noqa: E731
            stack.enter_context(replace_outputs(self.components.feed_forward, written))
            yield


def make_leaves(values: Values, count: int) -> dict[str, Tensor]:
    return {
        name: value.detach().expand(count, *value.shape[1:]).clone().requires_grad_() for name, value in values.items()
    }


def list_gradients(total: Tensor, leaves: Values) -> Sequence[Tensor | None]:
    """Return the gradient of a number for each leaf; None for a leaf on which the number does not depend."""
    if not total.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(total, list(leaves.values()), retain_graph=True, allow_unused=True)


def fill_gradients(total: Tensor, values: Values) -> dict[str, Tensor]:
    return {
        key: torch.zeros_like(value) if gradient is None else gradient.detach()
        for (key, value), gradient in zip(values.items(), list_gradients(total, values), strict=True)
    }


def graph_of_probe(subject: Subject[Any], probe: ProbeInput, receivers: Sequence[str] | None = None) -> ResidualGraph:
    """Return the graph of a subject on an input that can be run. `receivers`: the nodes of interest (None: all). The
    graph has inputs of heads only if one is among these. Raises `InputError` for a model with parts that cannot be
    separated."""
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
    return ResidualGraph(probe.run, probe.embedding, components, known)


@torch.no_grad()
def corrupted_pass(graph: ResidualGraph, clean: ProbeInput, corrupted: ProbeInput) -> Pass:
    """Return what the nodes write and read for another input of the same length. An encoder-decoder reads the target of
    the clean input in both runs. Raises `InputError` if the nodes do not account for all that is read."""

    def run(count: int) -> Tensor:
        if clean.run_tokens is None or corrupted.tokens is None:
            return corrupted.run(count)
        return clean.run_tokens(corrupted.tokens.expand(count, -1))

    passed = dataclasses.replace(graph, run=run).full(1)
    graph.check(passed)
    return passed


@torch.no_grad()
def edge_patching(graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metrics) -> Edges:
    """Return the exact effect of each edge: one copy of the input in a pass of the model for each edge. An edge that
    does not change what its receiver reads has the effect 0, without a pass."""
    whole, effects = float(metric(clean.logits)), Edges()
    for begin in range(0, len(graph.senders), graph.copies):
        senders = graph.senders[begin : begin + graph.copies]
        reads = patched_reads(graph, clean, corrupted, senders)
        same = patched_reads(graph, clean, clean, senders).read
        # By key of a receiver: in which copies its heads read different values, (N, H); H is 1 without heads
        differs = {key: (value != same[key]).any(-1).any(1).cpu().numpy() for key, value in reads.read.items()}
        changed = {key: values.reshape(len(values), -1) for key, values in differs.items()}
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
    `patches`: for each copy, the copy of `reads` and the receivers."""

    def receive(name: str, value: Tensor) -> Tensor:
        for copy, (source, receivers) in enumerate(patches):
            for receiver in receivers:
                if receiver.key == name:
                    part = own_part(receiver)
                    value[copy][part] = reads.received[name][source][part]
        return value

    logits = graph.full(len(patches), receive=receive).logits.clone()
    for copy, (source, receivers) in enumerate(patches):
        if any(receiver.key == LOGITS for receiver in receivers):
            logits[copy] = reads.logits[source]
    return logits


def own_part(receiver: Node) -> Any:
    """Return the index of what a receiver reads in a tensor (T, H, d) of its layer, or in its own (T, D)."""
    return slice(None) if receiver.head is None else (slice(None), receiver.head)


def integrated_edge_gradients(
    graph: ResidualGraph, clean: Pass, corrupted: Pass, metric: Metrics, *, steps: int = STEPS
) -> Edges:
    """Return the EAP-IG score of each edge over `steps` interpolated embeddings."""
    start, end = corrupted.sent[INPUTS], clean.sent[INPUTS]
    shares = (torch.arange(steps, dtype=start.dtype, device=start.device) / steps).view(-1, *[1] * (start.dim() - 1))
    embeddings = start + shares * (end - start)
    gradients = edge_gradients(
        graph, metric, lambda name, value: embeddings.clone() if name == INPUTS else value, points=steps
    )
    return score_edges(graph, clean, corrupted, gradients)


Gradients = tuple[Sequence[Node], Mapping[str, Tensor]]
"""N receivers, and, by key of a sender, the gradients (N, T, any) of the metric through one receiver each."""


def edge_gradients(
    graph: ResidualGraph, metric: Metrics, send: Change = unchanged, *, points: int = 1
) -> Iterator[Gradients]:
    """Yield the gradients of the metric through one receiver each, for some receivers at a time. `send` may change the
    input of the pass in which the gradient is computed, in `points` copies. Each receiver is yielded once for each of
    these points, with the gradient divided by their number."""
    with torch.enable_grad():
        passed = graph.full(points, send=send, receive=lambda name, value: value.requires_grad_())
        total = metric(passed.logits).sum() / points
        at_receivers = fill_gradients(total, passed.received)
    values = {key: value.detach() for key, value in passed.sent.items()}
    pairs = [(node, point) for node in graph.receivers for point in range(points)]
    for begin in range(0, len(pairs), graph.copies):
        chunk = pairs[begin : begin + graph.copies]
        chosen = [point for _, point in chunk]
        # The weight of what each receiver reads is zero in all copies but its own. One product for each tensor is
        # faster than one for each receiver, whose gradients would be tensors of all copies.
        weights = {key: torch.zeros(len(chunk), *value.shape[1:]).to(value) for key, value in at_receivers.items()}
        to_logits = torch.zeros(len(chunk)).to(total)
        for copy, (node, point) in enumerate(chunk):
            if node.key == LOGITS:
                to_logits[copy] = 1 / points
            else:
                part = own_part(node)
                weights[node.key][copy][part] = at_receivers[node.key][point][part]
        with torch.enable_grad():
            leaves = make_leaves({key: value[chosen] for key, value in values.items()}, len(chunk))
            direct = graph.direct(leaves, len(chunk))
            sums = [(direct.received[key] * weight).sum() for key, weight in weights.items()]
            sums.append((metric(direct.logits) * to_logits).sum())
            filled = fill_gradients(torch.stack(sums).sum(), leaves)
        reached = {key for node, _ in chunk for key in graph.edges[node.key]}
        yield [node for node, _ in chunk], {key: filled[key] for key in filled if key in reached}


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


# The methods at the level of edges: score = mean over corrupted inputs of | effect |. The metric is the mean
# explained value (the log-probability of the target class) over output steps. Corrupted inputs are other inputs
# with the same number of tokens. The authors of EAP and EAP-IG rank edges by absolute values, too.


def eap(trial: Trial[Any]) -> Edges:
    graph = graph_of_probe(trial.subject, trial.probe)
    gradients = list(edge_gradients(graph, _metric(trial)))  # the same for all corrupted inputs
    return _mean_effects(trial, graph, lambda clean, corrupted: score_edges(graph, clean, corrupted, gradients))


def mean_edges(trial: Trial[Any], score: Callable[..., Edges]) -> Edges:
    """Return the scores of all edges by `edge_patching` or `integrated_edge_gradients`."""
    graph = graph_of_probe(trial.subject, trial.probe)
    return _mean_effects(trial, graph, partial(score, graph, metric=_metric(trial)))


def random_edges(trial: Trial[Any]) -> Edges:
    """Return uniform random scores of all edges."""
    graph, draws = graph_of_probe(trial.subject, trial.probe), trial.draws("edges")
    return {edge: float(torch.rand((), generator=draws)) for edge in graph.all_edges}


def attribution_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return, by layer, the scores (H,) of attribution patching (Nanda 2023): context difference times gradient."""
    graph = graph_of_probe(trial.subject, trial.probe)
    with torch.enable_grad():
        passed = graph.full(1, send=lambda name, value: value.requires_grad_())
        gradients = fill_gradients(_metric(trial)(passed.logits).sum(), passed.sent)

    def effects(clean: Pass, corrupted: Pass) -> dict[str, Tensor]:
        products = {
            name: (clean.sent[name] - corrupted.sent[name])[0].double() * gradients[name][0].double()
            for name in graph.components.heads
        }
        return {name: graph.components.split(name, product).sum((0, 2)) for name, product in products.items()}

    return _mean_absolute(trial, graph, effects)[0]


def _metric(trial: Trial[Any]) -> Metrics:
    return lambda logits: trial.values(logits).mean(-1)


def _mean_effects(trial: Trial[Any], graph: ResidualGraph, effects: Callable[[Pass, Pass], Edges]) -> Edges:
    means, count = _mean_absolute(trial, graph, effects)
    trial.remarks.append(
        f"Absolute effects on the mean log-probability, over {count} corrupted inputs of the same length."
    )
    return means


def _mean_absolute(
    trial: Trial[Any], graph: ResidualGraph, effects: Callable[[Pass, Pass], Mapping[Any, Any]]
) -> tuple[dict[Any, Any], int]:
    """Return the means of absolute effects over corrupted inputs, and the number of these inputs. `effects` maps what
    the nodes write and read for a clean and for a corrupted input to effects. Raises `InputError` if no other input has
    the same length."""

    def content(probe: ProbeInput) -> Tensor:
        return read_pass(probe)[1][0] if probe.tokens is None else probe.tokens

    sums: dict[Any, Any] = {}
    count, own = 0, content(trial.probe)
    with torch.no_grad():
        clean = graph.full(1)
    for probe in trial.background.prepared:
        other = content(probe)
        if len(other) != len(own) or torch.equal(other, own):
            continue
        for name, effect in effects(clean, corrupted_pass(graph, trial.probe, probe)).items():
            sums[name] = sums.get(name, 0.0) + abs(effect)
        count += 1
        if count == CORRUPTED:
            break
    if not count:
        raise InputError(f"no other input has {len(own)} tokens: give others= with inputs of the same length")
    return {name: total / count for name, total in sums.items()}, count
