"""A forward pass as a linear graph: every query, key and value is a sum of what earlier parts of the model wrote.

    x = Σ_w J_w w          w: outputs of embeddings, positions, heads, feed-forward layers, and biases

The outputs are leaves of the autograd graph, and the scale of every norm is fixed at its value in this pass
(Elhage et al. 2021). Between the leaves, everything is linear. The Jacobian J_w therefore gives the exact part of
each output. The sum of the parts is compared with the vector: an operation that is not linear is an error.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.activations.components import Components
from regard.activations.layer_names import is_linear, is_norm
from regard.attention.names import layer_name
from regard.attention.positions import Concatenated, Positions
from regard.errors import InputError
from regard.interpret.frozen_norms import fixed_ratio, freeze_norm, same_value
from regard.viz.forward_pass import ForwardPass, ScoreCall

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


POSITION = re.compile(r"pos|wpe", re.I)
"""Names of embeddings of positions in transformers models."""
BLOCK = re.compile(r"(.*?\.)?\d+\.")
"""The block of a module, by the beginning of its name. In a block without a known feed-forward layer, every
linear layer outside attention counts as one; elsewhere, linear layers change the width of embeddings."""
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Largest accepted difference between a vector and the sum of its parts, relative to the largest part."""
HALF_TOLERANCE = 5e-2
"""The same for dtypes of half precision, whose parts are rounded to three digits."""


class LinearPass:
    """One pass of a model for one input, with norms frozen.

    `calls`: the calls of each attention layer. `leaves`: what the parts of the model wrote. Raises `InputError`
    for a recurrent model, whose states are not sums of outputs.
    """

    def __init__(self, model: nn.Module, components: Components, forward: ForwardPass) -> None:
        if any(isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in model.modules()):
            name = type(model).__name__
            raise InputError(
                f"{name} is recurrent: its states are not sums of outputs, so its scores cannot be split"
            )
        self.model, self.forward = model, forward
        self.contexts = {name: item for name, item in components.heads.items() if not item.is_torch}
        self.feed_forward = set(components.feed_forward.values())
        self._blocks = {block.group() for name in components.feed_forward if (block := BLOCK.match(name))}
        self.leaves: list[Leaf] = []
        self._counts = Counter[tuple[str, str]]()
        with torch.enable_grad(), self._watch(), forward.record() as calls:
            forward.run()
        self.calls = dict(calls)
        for name in self.calls:
            if name not in self.contexts:
                reason = components.left_out.get(name, "its heads cannot be separated")
                raise InputError(f"{name}: {reason}, so scores cannot be split")
        self._parameters = self._learned_vectors()
        self._values: dict[tuple[str, int, int], list[Contribution]] = {}

    def sources(self, vector: Tensor) -> list[Contribution]:
        """Return the parts of a vector (d,) of the graph, one for each writer, step and head.

        Raises `InputError` if the parts do not sum to the vector.
        """
        leaves = [*self.leaves, *self._parameters]
        sources = [
            source
            for leaf, part in zip(leaves, jacobians(vector, [leaf.value for leaf in leaves]), strict=True)
            if part is not None
            for source in leaf_sources(leaf, *part)
            if source.vector.any()
        ]
        exact = vector.detach().double().cpu()
        total = sum((source.vector for source in sources), torch.zeros_like(exact))
        largest = max([float(source.vector.abs().max()) for source in sources] + [1e-12])
        if not float((total - exact).abs().max()) <= TOLERANCE.get(vector.dtype, HALF_TOLERANCE) * largest:
            raise InputError(
                f"{type(self.model).__name__} has parts other than embeddings, heads, feed-forward layers, norms "
                "and biases, or parts that are not linear: its scores cannot be split"
            )
        return sources

    def call(self, layer: str) -> ScoreCall:
        """Return the call of a layer; `name#1` is its second call. Raises `InputError` for an unknown layer."""
        name, _, number = layer.partition("#")
        calls = self.calls.get(name, [])
        if int(number or 0) >= len(calls):
            raise InputError(
                f"{layer}: its queries and keys are arguments neither of transformers' attention interface nor "
                "of F.scaled_dot_product_attention, so its scores cannot be split"
            )
        return calls[int(number or 0)]

    def by_key(self, source: Contribution) -> list[Contribution]:
        """Split the part of a head by the steps that the head read: its weights times their values.

        Attention weights are fixed. Raises `InputError` if the context is more than weights times values.
        """
        assert source.head is not None and source.jacobian is not None
        call = self.call(source.name)
        weights = call.weights[source.head, source.step].detach().double().cpu()
        values = call.value[group(call.value, call.weights, source.head)].detach().double().cpu()
        jacobian = source.jacobian * self._context_factors(source, weights @ values)
        return [
            source._replace(
                key=key,
                vector=float(weights[key]) * (jacobian @ values[key]),
                jacobian=float(weights[key]) * jacobian,
            )
            for key in weights.nonzero().flatten().tolist()
        ]

    @torch.enable_grad()
    def by_writer(self, source: Contribution) -> list[Contribution]:
        """Split what a head read from one step by the parts of the model that wrote the value there."""
        assert source.head is not None and source.key is not None and source.jacobian is not None
        call = self.call(source.name)
        place = source.name, group(call.value, call.weights, source.head), source.key
        if place not in self._values:
            self._values[place] = self.sources(call.value[place[1], place[2]])
        outer = source.jacobian
        return [
            writer._replace(
                vector=outer @ writer.vector,
                jacobian=None if writer.jacobian is None else outer @ writer.jacobian,
            )
            for writer in self._values[place]
        ]

    def _context_factors(self, source: Contribution, expected: Tensor) -> Tensor:
        """Return the factors (Dv) between weights times values and the context: 1, or those of a gate."""
        leaf = next(leaf for leaf in self.leaves if (leaf.kind, leaf.name) == ("head", source.name))
        context = leaf.value.detach()[0, source.step].double().cpu().unflatten(-1, (leaf.heads, -1))[source.head]
        largest = max(float(context.abs().max()), float(expected.abs().max()), 1e-12)
        tolerance = TOLERANCE.get(leaf.value.dtype, HALF_TOLERANCE) * largest
        if float((context - expected).abs().max()) <= tolerance:
            return torch.ones_like(context)
        factors = torch.where(expected == 0, 0.0, context / expected)
        if float((expected * factors - context).abs().max()) > tolerance:
            raise InputError(f"{source.name}: the context is not a sum of weighted values, so it cannot be split")
        return factors

    def _learned_vectors(self) -> list[Leaf]:
        """Return parameters that a model adds to its states without a module, such as learned queries."""
        inside = {id(part) for layer in self._attention for part in layer.modules()}
        vectors = []
        for name, module in self.model.named_modules():
            has_hooks = (
                is_linear(module) or is_norm(module) or isinstance(module, Positions) or is_embedding(module)
            )
            if has_hooks or id(module) in inside:
                continue
            for parameter_name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() in (2, 3) and parameter.requires_grad:
                    kind: SourceKind = "position" if POSITION.search(parameter_name) else "vector"
                    vectors.append(
                        Leaf(
                            kind,
                            ".".join(filter(None, (layer_name(self.model, name), parameter_name))),
                            parameter,
                        )
                    )
        return vectors

    @property
    def _attention(self) -> list[nn.Module]:
        names = {layer_name(self.model, name): module for name, module in self.model.named_modules()}
        return [names[layer] for layer in self.contexts]

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Replace outputs by leaves, and freeze norms, inside the block."""
        projections = {id(contexts.projection): name for name, contexts in self.contexts.items()}
        inside = {id(part) for layer in self._attention for part in layer.modules()}
        wrapped: set[int] = set()
        with ExitStack() as stack:
            stack.enter_context(_FrozenLengths())
            for full_name, module in self.model.named_modules():
                name, before, after = layer_name(self.model, full_name), None, None
                if id(module) in wrapped:  # a layer inside an adapter is not a part
                    continue
                if module in self.feed_forward:
                    before, after = _detach_inputs, partial(self._replace_output, "feed_forward", name)
                elif id(module) in projections and self.contexts[projections[id(module)]].is_output:
                    after = partial(self._replace_output, "head", name)
                elif id(module) in projections:
                    before = partial(self._replace_contexts, projections[id(module)])
                    after = partial(self._separate_bias, name)
                elif module in self.forward.embeddings:
                    after = partial(self._replace_output, "token", name)
                elif isinstance(module, Positions | Concatenated):
                    after = partial(self._add_positions, name)
                elif is_embedding(module) and id(module) not in inside:
                    kind: SourceKind = "position" if POSITION.search(name) else "embedding"
                    after = partial(self._replace_output, kind, name)
                elif is_norm(module):
                    after = partial(self._freeze, name)
                elif is_linear(module) and id(module) not in inside and self._is_feed_forward(name):
                    before, after = _detach_inputs, partial(self._replace_output, "feed_forward", name)
                elif is_linear(module):
                    after = partial(self._separate_bias, name)
                else:
                    continue
                wrapped.update(map(id, module.modules()))
                if before is not None:
                    stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after).remove)
            yield

    def _is_feed_forward(self, name: str) -> bool:
        block = BLOCK.match(name)
        return block is not None and block.group() not in self._blocks

    def _add_leaf(self, kind: SourceKind, name: str, value: Tensor, heads: int = 1) -> Tensor:
        calls = self._counts[kind, name]
        self._counts[kind, name] += 1
        leaf = value.detach().clone().requires_grad_()
        self.leaves.append(Leaf(kind, f"{name}#{calls}" if calls else name, leaf, heads))
        return leaf.clone()  # some models add to it in place

    def _replace_output(self, kind: SourceKind, name: str, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):  # a mixture of experts also returns what its router chose
            return self._add_leaf(kind, name, output[0]), *output[1:]
        bias = getattr(module, "bias", None)
        if kind == "token" and isinstance(bias, Tensor):  # the embedding of one-hot letters is a linear layer
            return self._add_leaf(kind, name, output - bias) + self._add_leaf("bias", name, bias)
        return self._add_leaf(kind, name, output)

    def _replace_contexts(self, layer: str, module: nn.Module, args: Any) -> Any:
        return (self._add_leaf("head", layer, args[0], self.contexts[layer].heads), *args[1:])

    def _separate_bias(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        bias = getattr(module, "bias", None)
        if not isinstance(bias, Tensor):
            return None
        return same_value(output, output - bias.detach() + self._add_leaf("bias", name, bias))

    def _add_positions(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        states, *rest = args
        vectors = module.forward(torch.zeros_like(states), *rest)
        if isinstance(module, Concatenated):
            leaf = self._add_leaf("position", name, vectors[..., states.shape[-1] :])
            return torch.cat([states, leaf], dim=-1)
        if not torch.allclose(states + vectors, output, atol=1e-5, rtol=1e-5):
            raise InputError(f"{type(module).__name__} does not add positions to states: scores cannot be split")
        return same_value(output, states + self._add_leaf("position", name, vectors))

    def _freeze(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        states = args[0]
        if not states.requires_grad:
            return None
        return freeze_norm(module, states, output, partial(self._add_leaf, "bias", name))


class _FrozenLengths(TorchFunctionMode):
    """Divides by a constant where a vector is divided by its length, as in cosine scores."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.normalize:
            return same_value(result, args[0] * fixed_ratio(result, args[0]))
        return result


def _detach_inputs(module: nn.Module, args: Any) -> Any:
    return tuple(value.detach() if isinstance(value, Tensor) else value for value in args)


def is_embedding(module: nn.Module) -> bool:
    """Return whether a module embeds tokens or positions, judged by its class.

    >>> is_embedding(nn.Embedding(5, 4)), is_embedding(nn.Linear(5, 4))
    (True, False)
    """
    return isinstance(module, nn.Embedding) or type(module).__name__.endswith("PositionalEmbedding")


def group(values: Tensor, weights: Tensor, head: int) -> int:
    """Return the index of the values (G, Tk, Dv) that a head of weights (H, Tq, Tk) uses.

    >>> group(torch.zeros(2, 5, 3), torch.zeros(4, 5, 5), 3)
    1
    """
    return head * len(values) // len(weights)
