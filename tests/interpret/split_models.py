"""Models of each family with the input of each edge given explicitly, written with tensors and without hooks.

`forward(model, tokens, edges)` returns the logits and what each sender writes. The stream that a receiver reads
is the sum of what it gets from each sender, so that autograd on the edges gives the gradient of each edge (the
definition of EAP), and another value on one edge gives edge patching.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Edge = tuple[str, str]
Sent = dict[str, Tensor]


class Edges:
    """The value on each edge of one pass: what the sender wrote, unless `given` has another value."""

    def __init__(self, given: Mapping[Edge, Tensor] | None = None) -> None:
        self.given, self.values, self.sent = dict(given or {}), dict[Edge, Tensor](), Sent()

    def write(self, name: str, value: Tensor) -> None:
        """Note what a sender writes."""
        self.sent[name] = value

    def read(self, receiver: str, senders: Iterable[str] | None = None) -> Sent:
        """Return what a receiver gets from each sender."""
        names = list(self.sent if senders is None else senders)
        for sender in names:
            edge = sender, receiver
            self.values[edge] = self.given.get(edge, self.sent[sender] + 0.0)
        return {sender: self.values[sender, receiver] for sender in names}


def attend(query: Tensor, key: Tensor, value: Tensor, layer: Any, head: int, *, causal: bool) -> Tensor:
    """Return what one head writes (T, D) for the inputs of its query, key and value (T, D)."""
    width, group = layer.head_width, head * layer.groups // layer.heads
    queries, keys, values = (
        F.linear(states, part.weight[rows], None if part.bias is None else part.bias[rows])
        for states, part, rows in (
            (query, layer.query, slice(head * width, (head + 1) * width)),
            (key, layer.key, slice(group * width, (group + 1) * width)),
            (value, layer.value, slice(group * width, (group + 1) * width)),
        )
    )
    if layer.rotary is not None:
        queries, keys = (layer.rotary.rotate(states[None, None], 0)[0, 0] for states in (queries, keys))
    scores = queries @ keys.T / width**0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return F.linear(scores.softmax(-1) @ values, layer.output.weight[:, head * width : (head + 1) * width])


def bias(layer: Any) -> Tensor | float:
    """Return the bias of the output projection, which belongs to no head."""
    return 0.0 if layer.output.bias is None else layer.output.bias


def heads(edges: Edges, name: str, layer: Any, read: Callable[[str], Tensor], memory: Any = None, **how: Any) -> None:
    """Let each head read its query from `read`, and its keys and values from `memory` (default: `read`)."""
    memory, written = memory or read, Sent()
    for head in range(layer.heads):
        states = read(f"{name}.{head}.query"), memory(f"{name}.{head}.key"), memory(f"{name}.{head}.value")
        written[f"{name}.{head}"] = attend(*states, layer, head, **how)
    for sender, value in written.items():
        edges.write(sender, value)


def _normalized(norm: Any, stream: Callable[[str], Tensor], receiver: str) -> Tensor:
    states: Tensor = norm(stream(receiver))
    return states


def decoder_only(model: Any, edges: Edges, tokens: Tensor) -> Tensor:
    """Return the logits (T, C) of a decoder-only model with `pre_norm`."""
    constant = model.positions.weight[: len(tokens)] if model.positions is not None else 0.0
    edges.write("inputs", model.embedding(tokens) * model.scale)

    def stream(receiver: str) -> Tensor:
        total: Any = sum(edges.read(receiver).values()) + constant
        assert isinstance(total, Tensor)
        return total

    for number, block in enumerate(model.decoder.layers):
        norm = block.attention_residual.norm
        heads(
            edges,
            f"decoder.{number}.self_attention",
            block.self_attention,
            partial(_normalized, norm, stream),
            causal=True,
        )
        constant = constant + bias(block.self_attention)
        name = f"decoder.{number}.feed_forward"
        edges.write(name, block.feed_forward(block.feed_forward_residual.norm(stream(name))))
    logits: Tensor = model.logits(model.decoder.norm(stream("logits")))
    return logits


def query_model(model: Any, edges: Edges, tokens: Tensor) -> Tensor:
    """Return the logits (To, C) of a query model with an encoder layer, heads and self-attention of outputs.

    The model normalizes after each sum, so a receiver reads norms of sums of what the senders write.
    """
    constant = 0.0 if model.positions is None else model.positions.weight[: len(tokens)]
    edges.write("inputs", model.embedding(model.one_hot[tokens]))
    [block] = model.encoder
    names = [f"encoder.0.self_attention.{head}" for head in range(block.self_attention.heads)]

    def first(got: Sent) -> Tensor:
        return block.attention_residual.norm(sum(got[name] for name in ("inputs", *names)) + constant)

    def memory(receiver: str) -> Tensor:
        got = edges.read(receiver, ["inputs", *names, "encoder.0.feed_forward"])
        return block.feed_forward_residual.norm(first(got) + got["encoder.0.feed_forward"])

    heads(
        edges,
        "encoder.0.self_attention",
        block.self_attention,
        lambda receiver: edges.read(receiver)["inputs"] + constant,
        causal=False,
    )
    name = "encoder.0.feed_forward"
    edges.write(name, block.feed_forward(first(edges.read(name))))
    heads(edges, "cross", model.cross, lambda _: model.queries, memory, causal=False)
    cross = [f"cross.{head}" for head in range(model.cross.heads)]

    def states(receiver: str) -> Tensor:
        return model.cross_norm(sum(edges.read(receiver, cross).values()) + model.queries)

    heads(edges, "self_attention", model.self_attention, states, causal=False)
    own = [f"self_attention.{head}" for head in range(model.self_attention.heads)]
    got = edges.read("logits", [*cross, *own])
    before = model.cross_norm(sum(got[name] for name in cross) + model.queries)
    logits: Tensor = model.output(model.self_attention_norm(before + sum(got[name] for name in own)))
    return logits


def transformer(model: Any, edges: Edges, tokens: Tensor, target: Tensor) -> Tensor:
    """Return the logits (Tt, C) of an encoder-decoder with `pre_norm` for a source and a decoder input."""

    def embedded(embedding: Any, positions: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
        states = embedding(ids) * model.scale
        return states, positions(torch.zeros_like(states[None]))[0]

    states, constant = embedded(model.input_embedding, model.source_positions, tokens)
    edges.write("inputs", states)
    encoder = ["inputs"]
    for number, block in enumerate(model.encoder.layers):

        def read(receiver: str, norm: Any = block.attention_residual.norm, known: list[str] = encoder) -> Tensor:
            return norm(sum(edges.read(receiver, known).values()) + constant)

        name = f"encoder.{number}.self_attention"
        heads(edges, name, block.self_attention, read, causal=False)
        encoder += [f"{name}.{head}" for head in range(block.self_attention.heads)]
        name = f"encoder.{number}.feed_forward"
        edges.write(name, block.feed_forward(read(name, block.feed_forward_residual.norm)))
        encoder.append(name)

    def memory(receiver: str) -> Tensor:
        return model.encoder.norm(sum(edges.read(receiver, encoder).values()) + constant)

    states, positions = embedded(model.target_embedding, model.target_positions, target)
    start, decoder = states + positions, list[str]()

    def stream(receiver: str) -> Tensor:
        return sum(edges.read(receiver, decoder).values()) + start

    for number, block in enumerate(model.decoder.layers):
        for part, layer, norm in (
            ("self_attention", block.self_attention, block.self_residual.norm),
            ("cross", block.cross, block.cross_residual.norm),
        ):
            name = f"decoder.{number}.{part}"
            heads(
                edges,
                name,
                layer,
                partial(_normalized, norm, stream),
                memory if part == "cross" else None,
                causal=part != "cross",
            )
            decoder += [f"{name}.{head}" for head in range(layer.heads)]
        name = f"decoder.{number}.feed_forward"
        edges.write(name, block.feed_forward(block.feed_forward_residual.norm(stream(name))))
        decoder.append(name)
    logits: Tensor = model.logits(model.decoder.norm(stream("logits")))
    return logits
