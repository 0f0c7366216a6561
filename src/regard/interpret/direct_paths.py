"""The parts of a logit along direct paths (Elhage et al. 2021).

    logit = sum over heads, feed-forward layers, embeddings and biases of their output times the gradient

The residual stream is a sum of outputs. If the scale of every norm is fixed, the logit is a sum of parts, too.
The scales are fixed ("frozen") at their values in this forward pass. The ratio of output to input of
activations after the last block (in BERT's output head, and the cap of Gemma's logits) is fixed in the same way.
Only direct paths count: the effect of an output through a later layer belongs to the part of that layer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

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

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
"""Largest accepted difference between the sum of all parts and the logit, as a fraction of the largest part (at
least 1).
"""
HALF_TOLERANCE = 5e-2
"""Largest accepted difference for dtypes of half precision, whose parts are rounded to three digits."""
ACTIVATIONS = (F.gelu, F.silu, F.relu, torch.relu, torch.tanh)
"""Activation functions in output heads, such as those of BERT and RoBERTa."""
INDIRECT = "it adds to the logit only through other layers"
Part = tuple[str, str]
"""Kind and name of a part: head, feed forward, embedding or bias."""


class DirectPaths:
    """The outputs that are added to the residual stream in one pass, as leaves of a graph of direct paths only.

    Raises `InputError` for a model with layers that cannot be separated, or without a residual stream.
    """

    def __init__(self, model: nn.Module, components: Components) -> None:
        self.model, self.components = model, components
        self.leaves: list[tuple[Part, Tensor]] = []
        """Kind, name and value of each part."""
        kind = type(model).__name__
        for name, reason in {**components.left_out, **components.feed_forward_left_out}.items():
            raise InputError(f"{name} of {kind} cannot be separated: {reason}")
        if not components.heads:
            raise InputError(f"{kind} has no heads that can be separated")
        for name, layer in components.heads.items():
            if layer.is_torch:
                raise InputError(f"the projection after the heads of {name} is not known")
            if name not in components.states:
                raise InputError(
                    f"{name} of {kind} adds to no residual stream: its part of a logit is not defined"
                )

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Collect the parts of one pass inside the block."""
        contexts = {layer.projection: (name, layer) for name, layer in self.components.heads.items()}
        feed_forward = {module: name for name, module in self.components.feed_forward.items()}
        parameters = [
            (name, parameter)
            for name, parameter in self.model.named_parameters(recurse=False)
            if not name.endswith("weight")
        ]
        with ExitStack() as stack:
            inside: set[nn.Module] = set()

            def after(module: nn.Module, function: Callable[..., Any], *names: str) -> None:
                stack.callback(module.register_forward_hook(partial(function, *names)).remove)
                inside.update(module.modules())

            for full_name, module in self.model.named_modules():
                name = layer_name(self.model, full_name)
                if module in inside:  # a layer inside an adapter is no part
                    continue
                if module in contexts and contexts[module][1].is_output:
                    after(module, self._add_output, "head", contexts[module][0])
                elif module in contexts:
                    split = partial(self._split_heads, contexts[module][0])
                    stack.callback(module.register_forward_pre_hook(split).remove)
                    after(module, self._separate_bias, name)
                elif module in feed_forward:
                    after(module, self._add_output, "feed forward", feed_forward[module])
                elif isinstance(module, nn.Embedding | Concatenated):
                    after(module, self._add_output, "embedding", name)
                elif isinstance(module, Positions):
                    after(module, self._add_positions, name)
                elif is_norm(module):
                    after(module, self._freeze_norm, name)
                elif is_linear(module):
                    after(module, self._separate_bias, name)
            for name, parameter in parameters:  # biases, and learned queries
                stack.callback(parameter.requires_grad_, parameter.requires_grad)
                self.leaves.append((("bias", name), parameter.requires_grad_()))
            stack.enter_context(_FrozenActivations())
            yield

    def gradients(self, value: Tensor, *, retain_graph: bool = False) -> list[Tensor | None]:
        """Return the gradients of a number with respect to all leaves; None for leaves without a direct path."""
        if not value.requires_grad:
            return [None] * len(self.leaves)
        leaves = [leaf for _, leaf in self.leaves]
        return list(torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=retain_graph))

    def head_logits(self, logits: Tensor) -> dict[str, Tensor]:
        """Return, by layer, the direct parts (H, C) of heads in all logits (C) of one output step.

        The logits are linear in the contexts, so the product of their Jacobian and a context is its part. It is
        computed by two backward passes. A layer without a direct path is left out.
        """
        direction = torch.zeros_like(logits, requires_grad=True)
        parts: dict[str, Tensor] = {}
        for (kind, name), leaf in self.leaves:
            if kind != "head":
                continue
            [pulled] = torch.autograd.grad(logits, [leaf], direction, create_graph=True, allow_unused=True)
            if pulled is None:
                continue
            heads = self.components.heads[name].heads
            values = leaf.detach().unflatten(-1, (heads, -1))
            rows: list[Tensor] = []
            for head in range(heads):
                alone = torch.zeros_like(values)
                alone[..., head, :] = values[..., head, :]
                rows += torch.autograd.grad(pulled, [direction], alone.flatten(-2), retain_graph=True)
            parts[name] = parts.get(name, 0) + torch.stack(rows).detach()
        return parts

    def values(self, gradients: Sequence[Tensor | None]) -> dict[Part, Tensor]:
        """Return the value of each part: (H) of heads, zero without a direct path; otherwise one number.

        A part that runs several times is `name`, `name#1`, ...
        """
        values: dict[Part, Tensor] = {}
        calls: dict[Part, int] = {}
        for ((kind, name), leaf), gradient in zip(self.leaves, gradients, strict=True):
            number = calls.setdefault((kind, name), 0)
            calls[kind, name] += 1
            key = kind, f"{name}#{number}" if number else name
            if gradient is None:
                if kind == "head":
                    values[key] = torch.zeros(self.components.heads[name].heads, dtype=torch.float64)
                continue
            product = leaf.detach().double() * gradient.double()
            if kind == "head":
                heads = self.components.heads[name].heads
                values[key] = product.unflatten(-1, (heads, -1)).sum(-1).flatten(0, -2).sum(0)
            else:
                values[key] = product.sum()
        return values

    def indirect(self, gradients: Sequence[Tensor | None]) -> dict[str, str]:
        """Return the layers whose heads have no direct path, with the reason."""
        heads = [
            (name, gradient)
            for ((kind, name), _), gradient in zip(self.leaves, gradients, strict=True)
            if kind == "head"
        ]
        return {name: INDIRECT for name, gradient in heads if gradient is None}

    def check(self, value: Tensor, parts: dict[Part, Tensor]) -> float:
        """Return the value minus the sum of its parts; raises `InputError` if this is more than rounding."""
        total = sum(float(part.sum()) for part in parts.values())
        largest = max(1.0, *(float(part.abs().max()) for part in parts.values())) if parts else 1.0
        remainder = float(value.detach()) - total
        if not abs(remainder) <= TOLERANCE.get(value.dtype, HALF_TOLERANCE) * largest:
            raise InputError(
                f"{type(self.model).__name__} has parts other than heads, feed-forward layers, embeddings"
                f" and biases, which sum to {total:.4f}, but the logit is {float(value.detach()):.4f}"
            )
        return remainder

    def _add_leaf(self, kind: str, name: str, value: Tensor) -> Tensor:
        leaf = value.detach().requires_grad_()
        self.leaves.append(((kind, name), leaf))
        return leaf.clone()  # Falcon adds to it in place

    def _add_output(self, kind: str, name: str, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):  # a mixture of experts also returns its choices
            return (self._add_leaf(kind, name, output[0]), *output[1:])
        return self._add_leaf(kind, name, output)

    def _add_positions(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return same_value(output, args[0] + self._add_leaf("embedding", name, output - args[0]))

    def _split_heads(self, name: str, module: nn.Module, args: Any) -> Any:
        return (self._add_leaf("head", name, args[0]), *args[1:])

    def _separate_bias(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if not args[0].requires_grad:  # an embedding of real-valued inputs or of one-hot vectors
            return self._add_leaf("embedding", name, output)
        bias = getattr(module, "bias", None)
        if not isinstance(bias, Tensor):
            return None
        leaf = self._add_leaf("bias", name, bias.expand_as(output).clone())
        return same_value(output, output - bias.detach() + leaf)

    def _freeze_norm(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        states = args[0]
        if not states.requires_grad:
            return None

        def add_bias(bias: Tensor) -> Tensor:
            return self._add_leaf("bias", name, bias.expand_as(output).clone())

        return freeze_norm(module, states, output, add_bias)


class _FrozenActivations(TorchFunctionMode):
    """Replaces each activation with a multiplication by the constant output / input.

    Activations in feed-forward layers do not matter, because the outputs of these layers are parts as a whole.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in ACTIVATIONS and args[0].requires_grad:
            return same_value(result, args[0] * fixed_ratio(result, args[0]))
        return result
