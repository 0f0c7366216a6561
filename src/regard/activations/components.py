"""The components of a model that write into its residual stream: heads and feed-forward layers.

    state = embedding + sum over layers of (output projection of the contexts of all heads) + feed-forward outputs

Explanation methods change the context of a head before the output projection, or the output of a feed-forward
layer. `Subject.components` returns the components of a run or of an external model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.activations.head_inputs import HeadInputs, find_head_inputs
from regard.attention.blocks import Block
from regard.attention.feed_forward import FeedForward
from regard.attention.hooks import AttentionLayer, attention_layers, explicit_weights
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.attention.single import Attention

ContextChange = Callable[[Tensor], Tensor]
"""Maps the contexts (B, Tq, H Dv) of a call to changed contexts."""
CUSTOM = "its class is not known, so the contexts of its heads cannot be separated"


class HeadContexts:
    """The concatenated contexts of a layer's heads, before the output projection.

    `projection`: the output projection, the `nn.MultiheadAttention` itself if `is_torch` (which never calls its
    output projection as a module), or the layer itself if `is_output`: a layer without projections, whose output
    is the context of its only head.
    """

    def __init__(
        self, projection: nn.Module, heads: int, *, is_torch: bool = False, is_output: bool = False
    ) -> None:
        self.projection, self.heads, self.is_torch, self.is_output = projection, heads, is_torch, is_output

    @contextmanager
    def replace(self, change: ContextChange) -> Iterator[None]:
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
                handle = self.projection.register_forward_pre_hook(
                    lambda module, args: (change(args[0]), *args[1:])
                )
            stack.callback(handle.remove)
            yield

    def insert(self, clean: Tensor, heads: Sequence[int]) -> ContextChange:
        """Return a function that inserts the contexts of some heads from the clean run."""

        def change(states: Tensor) -> Tensor:
            patched = states.unflatten(-1, (self.heads, -1)).clone()
            patched[..., list(heads), :] = clean.unflatten(-1, (self.heads, -1))[..., list(heads), :]
            joined: Tensor = patched.flatten(-2)
            return joined

        return change

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


FindInputs = Callable[[], tuple[Mapping[str, HeadInputs], Mapping[str, str]]]


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
    find_inputs: FindInputs = lambda: ({}, {})
    """Function that returns, by layer, the queries, keys and values of its heads; and the layers in which those
    of single heads cannot be replaced, with the reason. An external model runs for this."""
    feed_forward_left_out: Mapping[str, str] = {}
    """Blocks without a known feed-forward layer, with the reason."""

    @property
    def head_inputs(self) -> Mapping[str, HeadInputs]:
        return self.find_inputs()[0]


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
        name, contexts, inputs = short_name(full_name), _contexts(layer), find_head_inputs(layer)
        if contexts is None:
            left_out[name] = f"{type(layer).__name__}: {CUSTOM}"
        else:
            heads[name] = contexts
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
    inputs_found = head_inputs, inputs_left_out
    return Components(heads, feed_forward, left_out, blocks, states, lambda: inputs_found)


def _contexts(layer: AttentionLayer) -> HeadContexts | None:
    if isinstance(layer, MultiHeadAttention):
        return HeadContexts(layer.output, layer.heads)
    return HeadContexts(layer, 1, is_output=True) if isinstance(layer, Attention) else None


@contextmanager
def _identity_projection(layer: Any) -> Iterator[nn.Module]:
    """Replace the output projection of a `nn.MultiheadAttention` with an identity, so that the layer returns
    its contexts; yields the real projection.
    """
    projection = layer.out_proj
    identity = nn.Linear(projection.in_features, projection.in_features).to(projection.weight)
    nn.init.eye_(identity.weight)
    nn.init.zeros_(identity.bias)
    layer.out_proj = identity
    try:
        yield projection
    finally:
        layer.out_proj = projection
