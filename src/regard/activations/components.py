"""The components of a model: heads and feed-forward layers, which write into the residual stream, and what heads read.

    state = embedding + sum over layers of (output projection of the contexts of all heads) + feed-forward outputs

Explanation methods change the context of a head before the output projection, the output of a feed-forward layer, or
the projected queries, keys and values of a head, where the edges of a model's graph end (Elhage et al. 2021,
"Decomposing attention head outputs"). `Subject.components` returns the components of a run or of an external model.

Why not `regard.replace`: `z` needs a mechanism that sees the contexts, and BLOOM, CodeGen or DeBERTa show weights
only; a hook on the projection that reads the contexts works for them, too, and costs less in many short passes.
`q` and `k` are those after rotary positions, and heads that share keys have one `k`: while a layer is watched
here, each head has a copy of the shared projection, so that the edges of the heads can be told apart.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.activations.interface import change_first
from regard.attention.blocks import Block, FeedForward
from regard.attention.layer import Attention, AttentionLayer, attention_layers, explicit_weights
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.attention.parts import Grouped, MultiQuery

Change = Callable[[str, Tensor], Tensor]
"""Maps the name of a component, and its contexts (B, Tq, H Dv) or output in a call, to a changed value."""
CUSTOM = "its class is not known, so the contexts of its heads cannot be separated"


class HeadContexts:
    """The concatenated contexts of a layer's heads, before the output projection.

    `projection`: the output projection, the `nn.MultiheadAttention` itself if `is_torch` (which never calls its
    output projection as a module), or the layer itself if `is_output`: a layer without projections, whose output
    is the context of its only head.
    """

    def __init__(self, projection: nn.Module, heads: int, *, is_torch: bool = False, is_output: bool = False) -> None:
        self.projection, self.heads, self.is_torch, self.is_output = projection, heads, is_torch, is_output

    @contextmanager
    def replace(self, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Replace all contexts (B, Tq, H Dv) of a call with the result of `change` inside the block.

        A recurrent decoder may call a layer once for each step, with Tq = 1.
        """
        with ExitStack() as stack:
            if self.is_torch:
                project = stack.enter_context(_identity_projection(self.projection))
                handle: Any = self.projection.register_forward_hook(
                    lambda module, args, output: (project(change(output[0])), *output[1:])
                )
            elif self.is_output:
                # The fused loop of a recurrent decoder does not call the layer; a layer with a hook is called.
                stack.enter_context(explicit_weights(self.projection))
                handle = self.projection.register_forward_hook(lambda module, args, output: change(output))
            else:
                handle = self.projection.register_forward_pre_hook(lambda module, args: (change(args[0]), *args[1:]))
            stack.callback(handle.remove)
            yield

    def outputs(self, contexts: Tensor) -> Tensor:
        """Return what each head adds to the residual stream, (N, H, D), for contexts or values (N, H, Dv).

        The bias of the output projection belongs to no head, and is left out.
        """
        if self.is_output:
            return contexts
        project: Any = self.projection.out_proj if self.is_torch else self.projection
        alone = torch.diag_embed(contexts.transpose(1, 2), dim1=1, dim2=2).flatten(2)  # (N, H, H Dv)
        outputs: Tensor = project(alone) - project(torch.zeros_like(alone[:1, :1]))
        return outputs


@contextmanager
def _identity_projection(layer: Any) -> Iterator[nn.Module]:
    """Let a `nn.MultiheadAttention` return its contexts: its output projection is an identity; yields the real one."""
    projection = layer.out_proj
    identity = nn.Linear(projection.in_features, projection.in_features).to(projection.weight)
    nn.init.eye_(identity.weight)
    nn.init.zeros_(identity.bias)
    layer.out_proj = identity
    try:
        yield projection
    finally:
        layer.out_proj = projection


@contextmanager
def replace_outputs(modules: Mapping[str, nn.Module], change: Change) -> Iterator[None]:
    """Replace the (first) outputs of modules with the results of `change` inside the block."""
    with ExitStack() as stack:
        for name, module in modules.items():
            changed = partial(change, name)
            hook = lambda module, args, output, changed=changed: change_first(output, changed)  # noqa: E731
            stack.callback(module.register_forward_hook(hook).remove)
        yield


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
                hook = partial(_change_arguments, change)
                stack.callback(self.layer.register_forward_pre_hook(hook).remove)
            for module in dict.fromkeys(part.module for part in self.parts.values()):
                stack.callback(module.register_forward_hook(partial(self._change, change)).remove)
            yield

    def matrices(self) -> list[Tensor]:
        """Return the matrices (D, H, d) of queries, keys and values, without biases, in float64.

        >>> [matrix.shape for matrix in find_head_inputs(MultiHeadAttention(12, heads=3, groups=1)).matrices()][1]
        torch.Size([12, 3, 4])
        """
        modules = {kind: part.projection or part.module for kind, part in self.parts.items()}
        return [self._split(kind, matrix_of(modules[kind]).double()) for kind in KINDS]

    def _split(self, kind: Kind, output: Tensor) -> Tensor:
        columns = self.parts[kind].columns.to(output.device)
        return output[..., columns].repeat_interleave(self.heads // len(columns), dim=-2)

    def _change(self, change: InputChange, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        kinds = [kind for kind in KINDS if self.parts[kind].module is module]
        changed = {kind: change(kind, self._split(kind, output)) for kind in kinds}
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


def _change_arguments(change: InputChange, module: nn.Module, args: Any) -> Any:
    """Change the queries, keys and values (B, T, D) of a layer with one head and without projections."""
    pairs = zip(KINDS, args, strict=False)
    changed = [change(kind, argument.unsqueeze(-2)).squeeze(-2) for kind, argument in pairs]
    return (*changed, *args[len(KINDS) :])


def find_head_inputs(layer: AttentionLayer) -> HeadInputs | str:
    """Return the inputs of the heads of a layer of `regard.attention`, or the reason why they cannot be separated.

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


class Components(NamedTuple):
    """The components of a model, by short name (without `.layers`), in the order of the forward pass."""

    heads: Mapping[str, HeadContexts]
    """By attention layer: the contexts of its heads."""
    feed_forward: Mapping[str, nn.Module]
    """Modules whose output is added to the residual stream."""
    left_out: Mapping[str, str]
    """Layers whose heads cannot be separated, with the reason."""
    blocks: Mapping[str, nn.Module] = {}
    """Modules whose (first) output is the residual state after a block."""
    states: Mapping[str, nn.Module] = {}
    """By attention layer: the module whose output is the residual stream after the block of the layer. A layer
    without residual connection, as in recurrent models, has none."""
    find_inputs: Callable[[], tuple[Mapping[str, HeadInputs], Mapping[str, str]]] = lambda: ({}, {})
    """Function that returns, by layer, the queries, keys and values of its heads; and the layers in which those
    of single heads cannot be replaced, with the reason. An external model runs for this."""
    feed_forward_left_out: Mapping[str, str] = {}
    """Blocks without a known feed-forward layer, with the reason."""

    @contextmanager
    def replace_contexts(self, change: Change, layers: Collection[str] | None = None) -> Iterator[None]:
        """Replace the contexts (B, Tq, H Dv) of some layers (None: all) inside the block."""
        with ExitStack() as stack:
            for name in self.heads if layers is None else layers:
                stack.enter_context(self.heads[name].replace(partial(change, name)))
            yield

    def split(self, layer: str, contexts: Tensor) -> Tensor:
        """Return contexts (..., H Dv) of a layer by head, (..., H, Dv)."""
        by_head: Tensor = contexts.unflatten(-1, (self.heads[layer].heads, -1))
        return by_head


def find_components(model: nn.Module) -> Components:
    """Return the components of a model that consists of Regard's layers.

    >>> from regard.attention.blocks import EncoderLayer
    >>> components = find_components(EncoderLayer(12, 3, 24))
    >>> components.heads["self_attention"].heads, list(components.feed_forward)
    (3, ['feed_forward'])
    """
    heads, left_out, head_inputs, inputs_left_out, states = {}, {}, {}, {}, {}
    modules = {short_name(name): module for name, module in model.named_modules()}
    for full_name, layer in attention_layers(model).items():
        name, inputs = short_name(full_name), find_head_inputs(layer)
        if isinstance(layer, MultiHeadAttention):
            heads[name] = HeadContexts(layer.output, layer.heads)
        elif isinstance(layer, Attention):
            heads[name] = HeadContexts(layer, 1, is_output=True)
        else:
            left_out[name] = f"{type(layer).__name__}: {CUSTOM}"
        if isinstance(inputs, str):
            inputs_left_out[name] = inputs
        else:
            head_inputs[name] = inputs
        block = modules[short_name(full_name.rpartition(".")[0])]
        state = block if isinstance(block, Block) else modules.get(f"{name}_norm")
        if state is not None:
            states[name] = state
    feed_forward = {name: module for name, module in modules.items() if isinstance(module, FeedForward)}
    blocks = {name: module for name, module in modules.items() if isinstance(module, Block)}
    return Components(heads, feed_forward, left_out, blocks, states, lambda: (head_inputs, inputs_left_out))
