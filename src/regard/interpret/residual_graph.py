"""The residual stream of a model as a graph: senders write into the stream, receivers read from it.

    senders      `inputs` (the embedding), each head (`LAYER.HEAD`), each feed-forward layer
    receivers    query, key and value input of each head (`LAYER.HEAD.query`), feed-forward layers, `logits`

An edge is the direct path from a sender to a receiver: residual connections, norms and projections, without
another sender (Elhage et al. 2021; Goldowsky-Dill et al. 2023). In a *direct pass* the output of every sender
is set to a known value, so that each receiver is a function of the senders on its direct paths only. This
function contains the norms. Therefore, edges are defined for models that normalize after each sum, too.

Letters: N copies of an input, T steps, H heads, d width of a head, D width of the model, C classes.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.activations.components import HeadContexts
from regard.activations.head_inputs import KINDS, HeadInputs, Kind
from regard.attention.names import known_name
from regard.errors import InputError
from regard.interpret.attribution.background import change_embedding
from regard.viz.subject import ProbeInput, Subject

INPUTS = "inputs"
"""Name of the sender that is the embedding of the input."""
LOGITS = "logits"
"""Name of the receiver that is the output of the model."""
MOST_COPIES = 256
"""Largest number of copies of an input in one pass. More copies save little time."""
MOST_NUMBERS = 2**25
"""Largest number of logits in one pass, which limits the memory of a model with a large vocabulary to about 1
GB."""
AGREEMENT = 1e-3
"""Largest accepted difference between direct pass and model, as a fraction of the largest value (at least
1)."""
Values = Mapping[str, Tensor]
"""By name of a module or layer: what it writes, (N, T, D) or (N, T, H d), or what it reads, (N, T, H, d)."""
Change = Callable[[str, Tensor], Tensor]


class Node(NamedTuple):
    """A sender or receiver: a place in the tensors of a pass."""

    name: str
    key: str
    """Name of the tensor in `Values`."""
    head: int | None = None


class Pass(NamedTuple):
    """What the senders wrote and the receivers read in one pass, and its logits (N, T, C)."""

    sent: dict[str, Tensor]
    received: dict[str, Tensor]
    logits: Tensor


def unchanged(name: str, value: Tensor) -> Tensor:
    del name
    return value


@dataclass(frozen=True)
class ResidualGraph:
    """The senders and receivers of a model on one input."""

    run: Callable[[int], Tensor]
    """Feeds N copies of the input to the model and returns logits (N, T, C)."""
    embedding: nn.Module
    heads: Mapping[str, HeadContexts]
    head_inputs: Mapping[str, HeadInputs]
    feed_forward: Mapping[str, nn.Module]

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
        nodes = [node for key in self._order.received for node in self._receiver_nodes(key)]
        return [*nodes, Node(LOGITS, LOGITS)]

    @cached_property
    def edges(self) -> dict[str, list[str]]:
        """By key of a receiver: the keys of the senders that have a direct path to it."""
        with torch.enable_grad():
            leaves = make_leaves(self._order.sent, 1)
            passed = self.direct(leaves, 1)
            reads = {**passed.received, LOGITS: passed.logits}
            return {
                key: [
                    sender
                    for sender, gradient in zip(leaves, list_gradients(value.sum(), leaves), strict=True)
                    if gradient is not None
                ]
                for key, value in reads.items()
            }

    @cached_property
    def _order(self) -> Pass:
        with torch.no_grad():
            return self.full(1)

    def nodes_of_sender(self, key: str) -> list[Node]:
        """Return the heads of a layer, or the only sender with this key."""
        if key not in self.heads:
            return [Node(key, key)]
        return [Node(f"{key}.{head}", key, head) for head in range(self.heads[key].heads)]

    def _receiver_nodes(self, key: str) -> list[Node]:
        layer, _, kind = key.rpartition(".")
        if layer not in self.head_inputs or kind not in KINDS:
            return [Node(key, key)]
        return [Node(f"{layer}.{head}.{kind}", key, head) for head in range(self.head_inputs[layer].heads)]

    def part(self, value: Tensor, sender: Node) -> Tensor:
        if sender.head is None:
            return value
        part: Tensor = value.unflatten(-1, (self.heads[sender.key].heads, -1))[..., sender.head, :]
        return part

    def node(self, name: str, nodes: Sequence[Node]) -> Node:
        """Return the node with a name; raises `InputError` for an unknown name."""
        by_name = {node.name: node for node in nodes}
        return by_name[known_name(name, by_name, "node")]

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
            # Without a copy, the gradient would contain other paths from the same tensor. OPT joins copies and
            # steps.
            steps = value.clone() if value.dim() > 2 else value.clone().unflatten(0, (count, -1))
            values[name] = change(name, steps)
            return values[name].reshape_as(value)

        with self._watch(
            lambda name, value: pass_on(sent, send, name, value),
            lambda name, value: pass_on(received, receive, name, value),
        ):
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
        return Pass(passed.sent, reads, passed.logits)

    @torch.no_grad()
    def check(self, other: Pass) -> None:
        """Raise `InputError` unless a direct pass with the values of another pass reads the same as that
        pass."""
        passed = self.direct(other.sent, 1)
        expected = {**other.received, LOGITS: other.logits}
        for name, value in {**passed.received, LOGITS: passed.logits}.items():
            largest = float((value - expected[name]).abs().max())
            if not largest <= AGREEMENT * max(1.0, float(expected[name].abs().max())):
                raise InputError(
                    f"{name} reads from other parts of the model than embedding, heads and feed-forward layers "
                    f"(a difference of {largest:.3g}): its edges cannot be separated"
                )

    @contextmanager
    def _watch(self, send: Change, receive: Change) -> Iterator[None]:
        with ExitStack() as stack:

            def hook(handle: Any) -> None:
                stack.callback(handle.remove)

            stack.enter_context(change_embedding(self.embedding, partial(send, INPUTS)))
            for name, contexts in self.heads.items():
                stack.enter_context(contexts.replace(partial(send, name)))
            for name, inputs in self.head_inputs.items():
                stack.enter_context(inputs.replace(partial(_receive_kind, receive, name)))
            for name, module in self.feed_forward.items():
                hook(
                    module.register_forward_pre_hook(
                        lambda module, args, name=name: (receive(name, args[0]), *args[1:])
                    )
                )
                hook(
                    module.register_forward_hook(
                        lambda module, args, output, name=name: send(name, output).clone()
                    )
                )  # Falcon adds in place
            yield


def _receive_kind(receive: Change, layer: str, kind: Kind, value: Tensor) -> Tensor:
    return receive(f"{layer}.{kind}", value)


def make_leaves(values: Values, count: int) -> dict[str, Tensor]:
    return {
        name: value.detach().expand(count, *value.shape[1:]).clone().requires_grad_()
        for name, value in values.items()
    }


def list_gradients(total: Tensor, leaves: Values) -> Sequence[Tensor | None]:
    """Return the gradient of a number for each leaf; None for a leaf on which the number does not depend."""
    if not total.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(total, list(leaves.values()), retain_graph=True, allow_unused=True)


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
