"""The inputs of attention heads: the projected queries, keys and values of each head, which can be replaced.

Edges of the graph of a model end at the query, key and value input of a head (Elhage et al. 2021, "Decomposing
attention head outputs"). Heads that share keys and values share the projection, too. While a layer is watched
here, each head has a copy of the shared projection, so that the edges of the heads can be told apart.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.hooks import AttentionLayer
from regard.attention.multihead import MultiHeadAttention
from regard.attention.sharing import Grouped, MultiQuery
from regard.attention.single import Attention

Kind = Literal["query", "key", "value"]
KINDS: tuple[Kind, ...] = ("query", "key", "value")
InputChange = Callable[[Kind, Tensor], Tensor]
"""Maps the kind of an input and its projections (B, T, H, d) to changed projections."""


class ProjectedPart(NamedTuple):
    """Where a layer computes its queries, keys or values."""

    module: nn.Module
    """Module whose output (B, T, any) holds them."""
    columns: Tensor
    """(G, d): the columns of each head in the output. Heads that share keys have the same."""
    projection: nn.Module | None = None
    """Linear module with these columns, if a norm is between it and `module`."""


@dataclass(frozen=True)
class HeadInputs:
    """The queries, keys and values of one attention layer."""

    parts: Mapping[Kind, ProjectedPart]
    """Empty for a layer without projections, whose arguments are its queries, keys and values."""
    heads: int
    layer: nn.Module
    counts: Mapping[str, int] = field(default_factory=dict)
    """Attributes of the layer, with the values that tell it that no heads share keys."""

    @contextmanager
    def replace(self, change: InputChange) -> Iterator[None]:
        """Replace the projections of each call with the results of `change` inside the block."""
        with ExitStack() as stack:
            for name, value in self.counts.items():
                stack.callback(setattr, self.layer, name, getattr(self.layer, name))
                setattr(self.layer, name, value)
            if not self.parts:
                handle: Any = self.layer.register_forward_pre_hook(
                    lambda module, args: _change_arguments(change, args)
                )
                stack.callback(handle.remove)
            for module in dict.fromkeys(part.module for part in self.parts.values()):
                hook = partial(self._change_output, change)
                stack.callback(module.register_forward_hook(hook).remove)
            yield

    @property
    def has_projections(self) -> bool:
        return bool(self.parts)

    def matrices(self) -> list[Tensor]:
        """Return the matrices (D, H, d) of queries, keys and values, without biases, in float64.

        >>> [matrix.shape for matrix in find_head_inputs(MultiHeadAttention(12, heads=3, groups=1)).matrices()][1]
        torch.Size([12, 3, 4])
        """
        return [
            self.split(kind, matrix_of(self.parts[kind].projection or self.parts[kind].module).double())
            for kind in KINDS
        ]

    def split(self, kind: Kind, output: Tensor) -> Tensor:
        columns = self.parts[kind].columns.to(output.device)
        return output[..., columns].repeat_interleave(self.heads // len(columns), dim=-2)

    def _change_output(self, change: InputChange, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        kinds = [kind for kind in KINDS if self.parts[kind].module is module]
        changed = {kind: change(kind, self.split(kind, output)) for kind in kinds}
        columns = {kind: self.parts[kind].columns.to(output.device) for kind in kinds}
        if all(len(own) == self.heads for own in columns.values()):
            for kind, own in columns.items():
                output = output.index_copy(-1, own.flatten(), changed[kind].flatten(-2))
            return output
        # Each head gets a copy of the keys that it shares, in the order of the layer: one kind after the other,
        # or the kinds of one group after those of the other.
        by_kind = all(int(columns[kind].max()) < int(columns[after].min()) for kind, after in pairwise(kinds))
        if by_kind:
            return torch.cat([changed[kind].flatten(-2) for kind in kinds], -1)
        return torch.cat([changed[kind] for kind in kinds], -1).flatten(-2)


def _change_arguments(change: InputChange, args: Any) -> Any:
    """Change the queries, keys and values (B, T, D) of a layer with one head and without projections."""
    changed = [
        change(kind, argument.unsqueeze(-2)).squeeze(-2) for kind, argument in zip(KINDS, args, strict=False)
    ]
    return (*changed, *args[len(KINDS) :])


def find_head_inputs(layer: AttentionLayer) -> HeadInputs | str:
    """Return the inputs of the heads of a layer of `regard.attention`, or the reason why they cannot be
    separated.

    >>> find_head_inputs(MultiHeadAttention(12, heads=3, groups=1)).parts["key"].columns
    tensor([[0, 1, 2, 3]])
    >>> find_head_inputs(MultiHeadAttention(12, heads=3, mechanism="output_gate"))
    'a gate also reads the states'
    """
    if isinstance(layer, Attention):
        return HeadInputs({}, 1, layer)
    if not isinstance(layer, MultiHeadAttention):
        return f"{type(layer).__name__} has no known projections"
    if layer.gate is not None:
        return "a gate also reads the states"
    if layer.marked is not None:
        return "its combination of weights may read the states"
    if layer.sharing is not None and type(layer.sharing) not in (Grouped, MultiQuery):
        return "its keys are not projected from the states directly"
    modules, groups = (layer.query, layer.key, layer.value), (layer.heads, layer.groups, layer.groups)
    parts = {
        kind: ProjectedPart(module, torch.arange(module.out_features).view(count, -1))
        for kind, module, count in zip(KINDS, modules, groups, strict=True)
    }
    counts = {} if layer.groups == layer.heads else {"groups": layer.heads}
    return HeadInputs(parts, layer.heads, layer, counts)


def matrix_of(projection: nn.Module) -> Tensor:
    """Return the matrix (inputs, outputs) of a linear module, without its bias.

    >>> matrix_of(nn.Linear(3, 2)).shape
    torch.Size([3, 2])
    """
    weight: Tensor = projection.weight  # type: ignore[assignment]
    width = weight.shape[1 if isinstance(projection, nn.Linear) else 0]  # GPT-2 stores the transposed matrix
    rows = torch.eye(width, dtype=weight.dtype, device=weight.device)
    matrix: Tensor = projection(rows) - projection(torch.zeros_like(rows))
    return matrix.detach()
