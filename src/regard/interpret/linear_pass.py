"""A forward pass as a linear graph: every vector and logit is a sum of what earlier parts of the model wrote.

    x = Σ_w J_w w          w: outputs of embeddings, positions, heads, feed-forward layers, and biases

The outputs are leaves of the autograd graph, and the scale of every norm is fixed ("frozen") at its value in this pass
(Elhage et al. 2021, "Handling layer normalization"). Between the leaves, everything is linear. The Jacobian J_w
therefore gives the exact part of each output along direct paths: the effect of an output through a later layer belongs
to the part of that layer. The sum of the parts is compared with the whole: an operation that is not linear is an error.

This graph is not made with `regard.replace`: it needs a leaf at every bias, position and embedding, and other gradients
of norms, and none of these is an activation with a name.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.activations.components import Components
from regard.activations.interface import is_linear, is_norm
from regard.attention.descriptions import part_name
from regard.attention.layer import AttentionLayer, LayerCall, attention_layers, trace_layer
from regard.attention.names import layer_name, short_name
from regard.attention.parts import Forgetting, Selective, positions_of
from regard.attention.positions import Concatenated, Positions
from regard.attention.scores import Cosine, Dot, General, Scalable, ScaledDot, SoftCapped
from regard.errors import InputError
from regard.viz.subject import Calls, ForwardPass, ScoreCall

PartKind = Literal["token", "position", "embedding", "head", "feed_forward", "bias", "vector"]
"""What a part of the model writes: a token embedding, a position, another embedding (such as BERT's segments), the
context of a head, the output of a feed-forward layer, a bias, a learned vector (such as a learned query)."""
ROWS = 16  # Rows of a Jacobian that are computed at once; more rows need more memory
POSITION = re.compile(r"pos|wpe", re.I)  # Names of embeddings of positions in transformers models
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Largest accepted difference between the sum of all parts and the whole, as a fraction of the largest part."""
HALF_TOLERANCE = 5e-2  # The same for dtypes of half precision, whose parts are rounded to three digits
ACTIVATIONS = (F.gelu, F.silu, F.relu, torch.relu, torch.tanh)
"""Activation functions in output heads, such as those of BERT and RoBERTa, and the cap of Gemma's logits."""
INDIRECT = "it adds to the logit only through other layers"


class Leaf(NamedTuple):
    """One output of a part of the model, as a leaf of the graph."""

    kind: PartKind
    name: str  # Short name of the layer or module; `name#1` for its second call
    value: Tensor  # (..., T, D); (D,) of a bias
    heads: int = 1


class LinearGraph:
    """The leaves of one pass of a model, with norms frozen.

    `tokens`: modules that embed tokens. `frozen`: functions replaced by a product with output / input.
    """

    def __init__(
        self, model: nn.Module, components: Components, tokens: Collection[nn.Module], frozen: Collection[Any]
    ) -> None:
        self.model, self.components, self.tokens, self.frozen = model, components, tokens, frozen
        self.contexts = {name: item for name, item in components.heads.items() if not item.is_torch}
        self.leaves: list[Leaf] = []
        self._counts = Counter[tuple[str, str]]()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Replace outputs by leaves, and freeze norms, in one pass inside the block."""
        projections = {id(contexts.projection): name for name, contexts in self.contexts.items()}
        feed_forward = {id(module) for module in self.components.feed_forward.values()}
        modules = {layer_name(self.model, name): module for name, module in self.model.named_modules()}
        inside = {id(part) for layer in self.contexts for part in modules[layer].modules()}
        unknown_blocks = tuple(f"{block}." for block in self.components.feed_forward_left_out)
        wrapped: set[int] = set()
        with ExitStack() as stack:
            stack.enter_context(_FrozenFunctions(self.frozen))
            for full_name, module in self.model.named_modules():
                name, before, after = layer_name(self.model, full_name), None, None
                if id(module) in wrapped:  # a layer inside an adapter is not a part
                    continue
                if id(module) in feed_forward:
                    before, after = _detach_inputs, partial(self._replace_output, "feed_forward", name)
                elif id(module) in projections and self.contexts[projections[id(module)]].is_output:
                    after = partial(self._replace_output, "head", name)
                elif id(module) in projections:
                    before = partial(self._replace_contexts, projections[id(module)])
                    after = partial(self._separate_bias, name)
                elif module in self.tokens:
                    after = partial(self._replace_output, "token", name)
                elif isinstance(module, Positions | Concatenated):
                    after = partial(self._add_positions, name)
                elif is_embedding(module) and id(module) not in inside:
                    kind: PartKind = "position" if POSITION.search(name) else "embedding"
                    after = partial(self._replace_output, kind, name)
                elif is_norm(module):
                    after = partial(self._freeze_norm, name)
                # In a block without a known feed-forward layer, every linear layer outside attention counts as one.
                # Elsewhere, linear layers change the width of embeddings, or are the output head.
                elif is_linear(module) and id(module) not in inside and name.startswith(unknown_blocks):
                    before, after = _detach_inputs, partial(self._replace_output, "feed_forward", name)
                elif is_linear(module):
                    after = partial(self._separate_bias, name)
                else:
                    continue
                wrapped.update(map(id, module.modules()))
                if before is not None:
                    stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after).remove)
            self._add_vectors(stack, inside)
            yield

    def _add_vectors(self, stack: ExitStack, inside: set[int]) -> None:
        """Add the parameters that a model adds to its states without a module, such as learned queries."""
        for name, module in self.model.named_modules():
            has_hooks = is_linear(module) or is_norm(module) or isinstance(module, Positions)
            if has_hooks or is_embedding(module) or id(module) in inside:
                continue
            for parameter_name, parameter in module.named_parameters(recurse=False):
                is_vector = parameter.dim() in (2, 3) and parameter.requires_grad
                is_bias = module is self.model and not parameter_name.endswith("weight")
                if is_vector or is_bias:
                    stack.callback(parameter.requires_grad_, parameter.requires_grad)
                    parameter.requires_grad_()
                    kind: PartKind = "position" if POSITION.search(parameter_name) else "vector"
                    path = ".".join(filter(None, (layer_name(self.model, name), parameter_name)))
                    self.leaves.append(Leaf(kind, path, parameter))

    def _add_leaf(self, kind: PartKind, name: str, value: Tensor, heads: int = 1) -> Tensor:
        calls = self._counts[kind, name]
        self._counts[kind, name] += 1
        leaf = value.detach().clone().requires_grad_()
        self.leaves.append(Leaf(kind, f"{name}#{calls}" if calls else name, leaf, heads))
        return leaf.clone()  # some models, such as Falcon, add to it in place

    def _replace_output(self, kind: PartKind, name: str, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):  # a mixture of experts also returns what its router chose
            return self._add_leaf(kind, name, output[0]), *output[1:]
        bias = getattr(module, "bias", None)
        if kind == "token" and isinstance(bias, Tensor):  # the embedding of one-hot letters is a linear layer
            return self._add_leaf(kind, name, output - bias) + self._add_leaf("bias", name, bias)
        return self._add_leaf(kind, name, output)

    def _replace_contexts(self, layer: str, module: nn.Module, args: Any) -> Any:
        return (self._add_leaf("head", layer, args[0], self.contexts[layer].heads), *args[1:])

    def _separate_bias(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if not args[0].requires_grad:  # an embedding of real-valued inputs or of one-hot vectors
            return self._add_leaf("embedding", name, output)
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
            raise InputError(f"{type(module).__name__} does not add positions to states, so no sum can be split")
        return same_value(output, states + self._add_leaf("position", name, vectors))

    def _freeze_norm(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        """Return the output of a norm: (states, perhaps minus their mean) * frozen scale * weight + bias."""
        states: Tensor = args[0]
        if not states.requires_grad:
            return None
        with torch.no_grad():
            centred = bool(torch.allclose(module.forward(states + states.std()), output, atol=1e-3, rtol=1e-3))
            direction = states - states.mean(-1, keepdim=True) if centred else states
            bias: Any = getattr(module, "bias", None)
            if isinstance(module, nn.LayerNorm):  # a quotient would be inexact where the direction is near 0
                scale = (direction.square().mean(-1, keepdim=True) + module.eps).rsqrt()
                ratio = scale if module.weight is None else scale * module.weight
            else:
                ratio = fixed_ratio(output if bias is None else output - bias, direction)
        linear = (states - states.mean(-1, keepdim=True) if centred else states) * ratio
        return same_value(output, linear if bias is None else linear + self._add_leaf("bias", name, bias))

    def tolerance(self, dtype: torch.dtype) -> float:
        return TOLERANCE.get(dtype, HALF_TOLERANCE)


class DirectPaths(LinearGraph):
    """The parts of logits along direct paths.

        paths = DirectPaths(model, components)
        with torch.enable_grad(), paths.watch():
            logits = model(inputs)
        parts, indirect = paths.parts(logits[0, -1, 3])

    The ratio of output to input of activation functions after the last block is fixed, too. Those in feed-forward
    layers do not matter, because the outputs of these layers are parts as a whole. Raises `InputError` for a
    model with layers that cannot be separated, or without a residual stream.
    """

    def __init__(self, model: nn.Module, components: Components) -> None:
        super().__init__(model, components, (), ACTIVATIONS)
        kind = type(model).__name__
        for name, reason in {**components.left_out, **components.feed_forward_left_out}.items():
            raise InputError(f"{name} of {kind} cannot be separated: {reason}")
        if not components.heads:
            raise InputError(f"{kind} has no heads that can be separated")
        for name, layer in components.heads.items():
            if layer.is_torch:
                raise InputError(f"the projection after the heads of {name} is not known")
            if name not in components.states:
                raise InputError(f"{name} of {kind} adds to no residual stream: its part of a logit is not defined")

    def parts(self, value: Tensor) -> tuple[dict[tuple[PartKind, str], Tensor], dict[str, str]]:
        """Return the parts of a number, (H) of heads and otherwise one number, by kind and name; and the layers
        whose heads have no direct path, with the reason: their parts are zero."""
        gradients: Sequence[Tensor | None] = [None] * len(self.leaves)
        if value.requires_grad:
            leaves = [leaf.value for leaf in self.leaves]
            gradients = torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=True)
        parts: dict[tuple[PartKind, str], Tensor] = {}
        indirect: dict[str, str] = {}
        for leaf, gradient in zip(self.leaves, gradients, strict=True):
            key = leaf.kind, leaf.name
            if gradient is not None:
                product = leaf.value.detach().double() * gradient.double()
                if leaf.kind == "head":
                    product = product.unflatten(-1, (leaf.heads, -1)).sum(-1).flatten(0, -2).sum(0)
                parts[key] = product if leaf.kind == "head" else product.sum()
            elif leaf.kind == "head":
                parts[key] = torch.zeros(leaf.heads, dtype=torch.float64)
                indirect[leaf.name] = INDIRECT
        return parts, indirect

    def remainder(self, value: Tensor, parts: dict[tuple[PartKind, str], Tensor]) -> float:
        """Return the value minus the sum of its parts; raises `InputError` if this is more than rounding."""
        total = sum(float(part.sum()) for part in parts.values())
        largest = max(1.0, *(float(part.abs().max()) for part in parts.values())) if parts else 1.0
        remainder = float(value.detach()) - total
        if not abs(remainder) <= self.tolerance(value.dtype) * largest:
            raise InputError(
                f"{type(self.model).__name__} has parts other than heads, feed-forward layers, embeddings"
                f" and biases, which sum to {total:.4f}, but the logit is {float(value.detach()):.4f}"
            )
        return remainder

    def head_logits(self, logits: Tensor) -> dict[str, Tensor]:
        """Return, by layer, the direct parts (H, C) of heads in all logits (C) of one output step. The logits are
        linear in the contexts, so the product of their Jacobian and a context is its part. It is computed by two
        backward passes. A layer without a direct path is left out."""
        direction = torch.zeros_like(logits, requires_grad=True)
        parts: dict[str, Tensor] = {}
        for leaf in (leaf for leaf in self.leaves if leaf.kind == "head"):
            [pulled] = torch.autograd.grad(logits, [leaf.value], direction, create_graph=True, allow_unused=True)
            if pulled is None:
                continue
            values = leaf.value.detach().unflatten(-1, (leaf.heads, -1))
            rows: list[Tensor] = []
            for head in range(leaf.heads):
                alone = torch.zeros_like(values)
                alone[..., head, :] = values[..., head, :]
                rows += torch.autograd.grad(pulled, [direction], alone.flatten(-2), retain_graph=True)
            layer = leaf.name.partition("#")[0]
            parts[layer] = parts.get(layer, 0) + torch.stack(rows).detach()
        return parts


class Contribution(NamedTuple):
    """What one part of the model wrote into a vector."""

    kind: PartKind
    name: str  # Short name of the layer or module
    step: int | None  # Step at which it was written; None for a bias, which is the same at every step
    vector: Tensor  # (d,), float64
    head: int | None = None
    key: int | None = None  # Step that the head read, if the part of a head is split by steps
    jacobian: Tensor | None = None
    """(d, Dv), float64: derivative of the vector by the context of a head, or by the value that it read."""


class LinearPass(LinearGraph):
    """One pass of a model for one input, whose queries, keys and values can be split.

    `calls`: the calls of each attention layer. Vectors that a model divides by their lengths, as in cosine scores, are
    divided by a constant. Raises `InputError` for a recurrent model, whose states are not sums of outputs.
    """

    def __init__(self, model: nn.Module, components: Components, forward: ForwardPass) -> None:
        super().__init__(model, components, forward.embeddings, (F.normalize,))
        if any(isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in model.modules()):
            name = type(model).__name__
            raise InputError(f"{name} is recurrent: its states are not sums of outputs, so its scores cannot be split")
        with torch.enable_grad(), self.watch(), forward.record() as calls:
            forward.run()
        self.calls = dict(calls)
        for name in self.calls:
            if name not in self.contexts:
                reason = components.left_out.get(name, "its heads cannot be separated")
                raise InputError(f"{name}: {reason}, so scores cannot be split")
        self.leaves = [leaf for leaf in self.leaves if leaf.value.requires_grad]
        self._values: dict[tuple[str, int, int], list[Contribution]] = {}

    def sources(self, vector: Tensor) -> list[Contribution]:
        """Return the parts of a vector (d,) of the graph, one for each writer, step and head. Raises `InputError` if
        the parts do not sum to the vector."""
        parts = zip(self.leaves, jacobians(vector, self.leaves), strict=True)
        contributions = [source for leaf, part in parts if part is not None for source in leaf_sources(leaf, *part)]
        sources = [source for source in contributions if source.vector.any()]
        exact = vector.detach().double().cpu()
        total = sum((source.vector for source in sources), torch.zeros_like(exact))
        largest = max([float(source.vector.abs().max()) for source in sources] + [1e-12])
        if not float((total - exact).abs().max()) <= self.tolerance(vector.dtype) * largest:
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
        """Split the part of a head by the steps that the head read: its weights times their values. Attention weights
        are fixed. Raises `InputError` if the context is more than weights times values."""
        assert source.head is not None and source.jacobian is not None
        call = self.call(source.name)
        weights = call.weights[source.head, source.step].detach().double().cpu()
        values = call.value[group(call.value, call.weights, source.head)].detach().double().cpu()
        leaf = next(leaf for leaf in self.leaves if (leaf.kind, leaf.name) == ("head", source.name))
        context = leaf.value.detach()[0, source.step].double().cpu().unflatten(-1, (leaf.heads, -1))[source.head]
        # The factors (Dv) between weights times values and the context: 1, or those of a gate
        expected, factors = weights @ values, torch.ones_like(context)
        tolerance = self.tolerance(leaf.value.dtype) * max(*(float(v.abs().max()) for v in (context, expected)), 1e-12)
        if float((context - expected).abs().max()) > tolerance:
            factors = torch.where(expected == 0, 0.0, context / expected)
        if float((expected * factors - context).abs().max()) > tolerance:
            raise InputError(f"{source.name}: the context is not a sum of weighted values, so it cannot be split")
        jacobian = source.jacobian * factors
        return [
            source._replace(
                key=key, vector=float(weights[key]) * (jacobian @ values[key]), jacobian=float(weights[key]) * jacobian
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
                vector=outer @ writer.vector, jacobian=None if writer.jacobian is None else outer @ writer.jacobian
            )
            for writer in self._values[place]
        ]


def leaf_sources(leaf: Leaf, steps: list[int], jacobian: Tensor) -> Iterator[Contribution]:
    """Yield the parts of a leaf at some steps; `jacobian`: (d, steps, D) float64."""
    values = leaf.value.detach().double().cpu().reshape(-1, leaf.value.shape[-1])[steps]
    for place, step in enumerate(steps):
        if leaf.kind != "head":
            at = None if leaf.kind == "bias" else step
            yield Contribution(leaf.kind, leaf.name, at, jacobian[:, place] @ values[place])
            continue
        by_head = jacobian[:, place].unflatten(-1, (leaf.heads, -1))
        contexts = values[place].unflatten(-1, (leaf.heads, -1))
        for head in range(leaf.heads):
            part = by_head[:, head]
            yield Contribution(leaf.kind, leaf.name, step, part @ contexts[head], head=head, jacobian=part)


def jacobians(vector: Tensor, leaves: Sequence[Leaf]) -> list[tuple[list[int], Tensor] | None]:
    """Return, for each leaf (..., D), the steps on which a vector (d,) depends, and its Jacobian (d, steps, D). A step
    is an index of the leaf, flattened except for the last dimension. None: the vector is independent."""
    if not vector.requires_grad:
        return [None] * len(leaves)
    tensors = [leaf.value for leaf in leaves]

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


class _FrozenFunctions(TorchFunctionMode):
    """Replaces functions of one argument by a product with the constant output / input."""

    def __init__(self, functions: Collection[Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.functions and args[0].requires_grad:
            return same_value(result, args[0] * fixed_ratio(result, args[0]))
        return result


def same_value(value: Tensor, linear: Tensor) -> Tensor:
    return value.detach() + (linear - linear.detach())


def fixed_ratio(output: Tensor, states: Tensor) -> Tensor:
    """Return `output / states` as a constant, and 0 where `states` is 0."""
    return torch.where(states == 0, 0.0, output / states).detach()


def _detach_inputs(module: nn.Module, args: Any) -> Any:
    return tuple(value.detach() if isinstance(value, Tensor) else value for value in args)


def is_embedding(module: nn.Module) -> bool:
    """Return whether a module embeds tokens or positions, judged by its class."""
    return isinstance(module, nn.Embedding) or type(module).__name__.endswith("PositionalEmbedding")


def group(values: Tensor, weights: Tensor, head: int) -> int:
    """Return the index of the values (G, Tk, Dv) that a head of weights (H, Tq, Tk) uses."""
    return head * len(values) // len(weights)


# The scores of Regard's own attention layers, as products of query and key in the autograd graph. They are recorded
# by `trace_layer` and not by `regard.record`: the split of a score also needs the mask, and the parts of the layer
# that scaled or changed the product.

BILINEAR = (Dot, ScaledDot, General, Scalable, Cosine, SoftCapped)
"""Scores that are products of query and key, times a factor that can be fixed."""


def own_forward_pass(model: nn.Module, run: Callable[[], Any]) -> ForwardPass:
    """Return the forward pass of one of Regard's models; `run` runs it on one input."""
    return ForwardPass(
        run=run,
        record=partial(record_calls, model),
        embeddings=frozenset(
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding) or name.rpartition(".")[2] == "embedding"
        ),
    )


@contextmanager
def record_calls(model: nn.Module) -> Iterator[Calls]:
    """Record the calls of all attention layers of a model for one input inside the block."""
    calls: dict[str, list[ScoreCall]] = {}
    layers = attention_layers(model)
    with ExitStack() as stack:
        traces = {name: stack.enter_context(trace_layer(layer)) for name, layer in layers.items()}
        yield calls
    for name, traced in traces.items():
        if traced:
            calls[short_name(name)] = [make_call(layers[name], call) for call in traced]


def make_call(layer: AttentionLayer, trace: LayerCall) -> ScoreCall:
    """Return one call of a layer for one input, with the factors and additions that make its scores."""
    query, key, value = trace.query[0], trace.key[0], trace.value[0]
    weights, scores = trace.weights[0].detach(), trace.scores[0].detach()
    mask = None if trace.mask is None else trace.mask.expand_as(trace.scores)[0]
    refusal, additions, remarks, score = "", dict[str, Tensor](), list[str](), layer.score
    if layer.linear is not None:
        refusal = f"{part_name(layer.linear)} has no scores: its weights are those that its recurrence implies"
    elif layer.combination is not None and not isinstance(layer.combination, Forgetting | Selective):
        refusal = f"{part_name(layer.combination)} combines several scores, so no score belongs to this weight alone"
    elif type(score) not in BILINEAR:
        refusal = f"the score {part_name(score)} is not a sum of products of query and key"
    if refusal:
        return ScoreCall(query, key, value, weights, scores, torch.ones(()), additions, mask, (), refusal)
    with torch.no_grad():
        # The factors between products of query and key (H, Tq, Tk) and scores
        products = query.double() @ key.double().transpose(-1, -2)
        if isinstance(score, Cosine):
            factors = score.gain.double() / query.double().norm(dim=-1, keepdim=True).clamp(min=1e-12)
            remarks.append("lengths of queries and keys are fixed (cosine)")
        elif isinstance(score, SoftCapped):
            factors = torch.full((), query.shape[-1] ** -0.5, dtype=torch.float64)
            capped = score.cap * torch.tanh(products * factors / score.cap)
            factors = factors * torch.where(products == 0, 1.0, capped / (products * factors))
            remarks.append("the ratio of the capped score to the score is fixed (soft_capped)")
        else:
            factors = torch.full((), score.scale(query.shape[-1]), dtype=torch.float64)
        if score.rescale(products[None], trace.mask) is not products:
            factors = factors * score.rescale(torch.ones_like(products)[None], trace.mask)[0]
        if layer.bias is not None:
            positions = positions_of(scores.shape[1], scores.shape[2], scores.device)
            additions[part_name(layer.bias)] = layer.bias(*positions).double()
        if layer.combination is not None:
            before = factors * products + sum(additions.values())
            additions[part_name(layer.combination)] = scores.double() - before
            remarks.append(f"{part_name(layer.combination)} is fixed")
    return ScoreCall(query, key, value, weights, scores, factors, additions, mask, tuple(remarks))
