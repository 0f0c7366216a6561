"""The inputs of attention heads: the projected queries, keys and values of each head, which can be replaced.

Edges of the graph of a model end at the query, key and value input of a head (Elhage et al. 2021, "Decomposing
attention head outputs"). Heads that share keys and values share the projection, too. While a layer is watched
here, each head has a copy of the shared projection, so that the edges of the heads can be told apart.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

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


@dataclass(frozen=True)
class HeadInputs:
    """The projections of one attention layer."""

    modules: tuple[nn.Module, ...]
    """Three projections in the order of `KINDS`; one module that computes all three, side by side; or an
    attention layer without projections, whose arguments are its queries, keys and values."""
    heads: int
    groups: int
    """Number of heads of keys and values."""
    group_count: tuple[nn.Module, str, int] | None = None
    """The module, the name and the value of the attribute that tells a layer that no heads share keys."""

    @contextmanager
    def replace(self, change: InputChange) -> Iterator[None]:
        """Replace the projections of each call with the results of `change` inside the block."""
        with ExitStack() as stack:
            if self.group_count is not None:
                stack.enter_context(_set_attribute(*self.group_count))
            for handle in self._register(change):
                stack.callback(handle.remove)
            yield

    @property
    def has_projections(self) -> bool:
        """Whether queries, keys and values are projections of the states."""
        return not isinstance(self.modules[0], AttentionLayer)

    def matrices(self) -> list[Tensor]:
        """Return the matrices (D, H, d) of queries, keys and values, without biases, in float64.

        >>> [matrix.shape for matrix in find_head_inputs(MultiHeadAttention(12, heads=3, groups=1)).matrices()][1]
        torch.Size([12, 3, 4])
        """
        joined = [matrix_of(module).double() for module in self.modules]
        if len(joined) == 1:
            joined = list(joined[0].chunk(3, dim=-1))
        return [self._split(kind, matrix) for kind, matrix in zip(KINDS, joined, strict=True)]

    def _register(self, change: InputChange) -> list[Any]:
        if len(self.modules) == 3:
            return [
                module.register_forward_hook(
                    lambda module, args, output, kind=kind: change(kind, self._split(kind, output)).flatten(-2)
                )
                for kind, module in zip(KINDS, self.modules, strict=True)
            ]
        [module] = self.modules
        if isinstance(module, AttentionLayer):
            return [module.register_forward_pre_hook(lambda module, args: _change_arguments(change, args))]
        return [module.register_forward_hook(lambda module, args, output: self._change_fused(change, output))]

    def _split(self, kind: Kind, output: Tensor) -> Tensor:
        groups = self.heads if kind == "query" else self.groups
        projections: Tensor = output.unflatten(-1, (groups, -1))
        return projections.repeat_interleave(self.heads // groups, dim=-2)

    def _change_fused(self, change: InputChange, output: Tensor) -> Tensor:
        parts = output.unflatten(-1, (3, self.heads, -1)).unbind(-3)
        changed = [change(kind, part).flatten(-2) for kind, part in zip(KINDS, parts, strict=True)]
        return torch.cat(changed, dim=-1)


def _change_arguments(change: InputChange, args: Any) -> Any:
    """Change the queries, keys and values (B, T, D) of a layer with one head and without projections."""
    changed = [
        change(kind, argument.unsqueeze(-2)).squeeze(-2) for kind, argument in zip(KINDS, args, strict=False)
    ]
    return (*changed, *args[len(KINDS) :])


@contextmanager
def _set_attribute(module: nn.Module, name: str, value: int) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def find_head_inputs(layer: AttentionLayer) -> HeadInputs | str:
    """Return the inputs of the heads of a layer of `regard.attention`, or the reason why they cannot be
    separated.

    >>> find_head_inputs(MultiHeadAttention(12, heads=3, groups=1)).groups
    1
    >>> find_head_inputs(MultiHeadAttention(12, heads=3, mechanism="output_gate"))
    'a gate also reads the states'
    """
    if isinstance(layer, Attention):
        return HeadInputs((layer,), 1, 1)
    if not isinstance(layer, MultiHeadAttention):
        return f"{type(layer).__name__} has no known projections"
    if layer.gate is not None:
        return "a gate also reads the states"
    if layer.marked is not None:
        return "its combination of weights may read the states"
    if layer.sharing is not None and type(layer.sharing) not in (Grouped, MultiQuery):
        return "its keys are not projected from the states directly"
    shared = None if layer.groups == layer.heads else (layer, "groups", layer.heads)
    return HeadInputs((layer.query, layer.key, layer.value), layer.heads, layer.groups, shared)


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
