"""What each part of a model wrote into a vector, from the Jacobian of the vector."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

SourceKind = Literal["token", "position", "embedding", "head", "feed_forward", "bias", "vector"]
"""What a part of the model writes: a token embedding, a position, another embedding (such as BERT's segments),
the context of a head, the output of a feed-forward layer, a bias, a learned vector (such as the queries of a
query model)."""
ROWS = 16
"""Rows of a Jacobian that are computed at once; more rows need more memory."""


class Leaf(NamedTuple):
    """One output of a part of the model, as a leaf of the graph."""

    kind: SourceKind
    name: str
    """Short name of the layer or module; `name#1` for its second call."""
    value: Tensor
    """(..., T, D)."""
    heads: int = 1


class Contribution(NamedTuple):
    """What one part of the model wrote into a vector."""

    kind: SourceKind
    name: str
    """Short name of the layer or module."""
    step: int | None
    """Step at which it was written; None for a bias, which is the same at every step."""
    vector: Tensor
    """(d,), float64."""
    head: int | None = None
    key: int | None = None
    """Step that the head read, if the part of a head is split by steps."""
    jacobian: Tensor | None = None
    """(d, Dv), float64: derivative of the vector by the context of a head, or by the value that it read."""


def leaf_sources(leaf: Leaf, steps: list[int], jacobian: Tensor) -> Iterator[Contribution]:
    """Yield the parts of a leaf at some steps; `jacobian`: (d, steps, D) float64."""
    values = leaf.value.detach().double().cpu().reshape(-1, leaf.value.shape[-1])[steps]
    for place, step in enumerate(steps):
        if leaf.kind != "head":
            yield Contribution(
                leaf.kind, leaf.name, None if leaf.kind == "bias" else step, jacobian[:, place] @ values[place]
            )
            continue
        by_head = (
            jacobian[:, place].unflatten(-1, (leaf.heads, -1)),
            values[place].unflatten(-1, (leaf.heads, -1)),
        )
        for head in range(leaf.heads):
            part = by_head[0][:, head]
            yield Contribution(leaf.kind, leaf.name, step, part @ by_head[1][head], head=head, jacobian=part)


def jacobians(vector: Tensor, tensors: Sequence[Tensor]) -> list[tuple[list[int], Tensor] | None]:
    """Return, for each tensor (..., D), the steps on which a vector (d,) depends, and its Jacobian (d, steps, D).

    A step is an index of the tensor, flattened except for the last dimension. None: the vector is independent.
    """
    if not vector.requires_grad:
        return [None] * len(tensors)

    def products(rows: Tensor) -> list[Tensor | None]:
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            vector, tensors, rows, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        return [None if part is None else part.reshape(len(rows), -1, part.shape[-1]) for part in gradients]

    # A product with random numbers is zero only where the Jacobian is zero. Almost all steps are zero, because
    # only attention mixes steps.
    random = torch.randn(1, len(vector), generator=torch.Generator().manual_seed(0)).to(vector)
    places = [[] if part is None else part[0].any(-1).nonzero().flatten().tolist() for part in products(random)]
    kept: list[list[Tensor]] = [[] for _ in tensors]
    for rows in torch.eye(len(vector), dtype=vector.dtype, device=vector.device).split(ROWS):
        for parts, steps, part in zip(kept, places, products(rows), strict=True):
            if part is not None and steps:
                parts.append(part[:, steps].double().cpu())
    return [(steps, torch.cat(parts)) if steps else None for steps, parts in zip(places, kept, strict=True)]
