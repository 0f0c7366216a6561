"""Direct logit attribution (Elhage et al. 2021, "Logit attribution"): what each head adds to a token's logit.

    logit = sum over heads, feed-forward layers, embeddings and biases of their output times the gradient

The residual stream is a sum of outputs. If the scale of every norm is fixed, the logit is a sum of parts, too.
The scales are fixed ("frozen") at their values in this forward pass. The ratio of output to input of
activations after the body (in BERT's output head, and the cap of Gemma's logits) is fixed in the same way. Only
direct paths count: the effect of an output through a later layer belongs to the part of that layer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.table import Table
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import short_name
from regard.attention.interventions import active_interventions
from regard.errors import InputError
from regard.external.adapters import call_model
from regard.external.hooks import DetachableHook, remove_hooks
from regard.external.model_components import head_projections
from regard.external.modules import unwrap
from regard.external.next_tokens import TokenInput, read_tokens
from regard.io import write_file
from regard.result import Result
from regard.viz import Subject
from regard.viz.attention_map import PICTURES, check_extension

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
"""Largest accepted difference between the sum of all parts and the logit, as a fraction of the largest part (at
least 1).
"""
HALF_TOLERANCE = 5e-2
"""Largest accepted difference for dtypes of half precision, whose parts are rounded to three digits."""
ACTIVATIONS = (F.gelu, F.silu, F.relu, torch.relu, torch.tanh)
"""Activation functions in output heads, such as those of BERT and RoBERTa."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitAttribution(Result):
    """The parts of one logit. The parts sum to `logit - remainder`."""

    input: str
    token: str
    token_id: int
    position: int
    """Index of the token at which the logit is read."""
    at: str
    logit: float
    heads: dict[str, list[float]]
    """By layer: the part of each head, through its output projection."""
    feed_forward: dict[str, float]
    """By module: the part of each feed-forward layer, with its bias."""
    embeddings: dict[str, float]
    biases: dict[str, float]
    """By module: output projections of attention, norms and the output head."""
    remainder: float
    """Rounding."""
    interventions: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """Sum of all parts."""
        heads = sum(sum(values) for values in self.heads.values())
        return heads + sum(sum(part.values()) for part in (self.feed_forward, self.embeddings, self.biases))

    def summary(self) -> str:
        """Return the head with the largest part, in one line."""
        value, layer, head = max(
            ((value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)),
            key=lambda part: abs(part[0]),
        )
        return f"{self.token!r} has logit {self.logit:+.3f}; {layer} head {head} adds most, {value:+.3f}"

    def table(self) -> Table:
        """Return a table with a row for each layer, and the sums of the other parts."""
        most = max(map(len, self.heads.values()))
        table = Table("layer", *(f"head {head}" for head in range(most)), box=None, pad_edge=False)
        table.title = f"Parts of the logit {self.logit:+.3f} of {self.token!r}, norms frozen"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            table.add_row(layer, *(f"{value:+.3f}" for value in values))
        for name in ("feed_forward", "embeddings", "biases"):
            table.add_row(name.replace("_", " "), f"{sum(getattr(self, name).values()):+.3f}")
        return table

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import draw_head_table

        path = Path(path)
        check_extension(path, PICTURES)
        title = f"{self.input!r}: what each head adds to the logit of {self.token!r}"
        write_file(path, draw_head_table(self.heads, title, path.suffix.lower()[1:]))
        return path


def logit_attribution(
    subject: Subject[Any], text: str, *, token: int | str | None = None, position: int | None = None
) -> LogitAttribution:
    """Return the direct contribution of each head, feed-forward layer, embedding and bias to the logit of a
    token.

    `token`: a text, of which the first token is used, or a token id (None: the likeliest token). `position`: as
    in `next_tokens`. The scales of all norms are fixed at their values in this forward pass (frozen). The sum
    of all parts is compared with the logit. Works for causal and masked language models of transformers, also
    inside `intervene`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.logit_attribution(model, "The cat sat on the", token=" mat").plot("mat.svg")    # doctest: +SKIP

    Raises `InputError` for another model, or if the parts do not sum to the logit.
    """
    tokens = read_tokens(subject, text)
    place = tokens.position(position)
    wanted = _token_id(tokens, token)
    parts = _Parts(tokens)
    model, adapter = tokens.subject.model, tokens.subject.adapter
    with torch.enable_grad(), parts.watch():
        output = adapter.logits(call_model(model, tokens.arguments))
        assert output is not None
        logits = output[0, place - len(tokens.ids)]
        number = int(logits.argmax()) if wanted is None else wanted
        leaves = [leaf for _, leaf in parts.leaves]
        gradients: Sequence[Tensor | None] = [None] * len(leaves)
        if logits.requires_grad:
            gradients = torch.autograd.grad(logits[number], leaves, allow_unused=True)
    logit = float(logits[number].detach())
    values = parts.values(gradients)
    remainder = logit - sum(float(value.sum()) for value in values.values())
    largest = max(1.0, *(float(value.abs().max()) for value in values.values())) if values else 1.0
    tolerance = TOLERANCE.get(logits.dtype, HALF_TOLERANCE)
    if not abs(remainder) <= tolerance * largest:
        raise InputError(
            f"{type(unwrap(model)).__name__} has parts other than heads, feed-forward layers, embeddings"
            f" and biases, which sum to {logit - remainder:.4f}, but the logit is {logit:.4f}"
        )

    def named(kind: str) -> dict[str, float]:
        return {name: float(value) for (part, name), value in values.items() if part == kind}

    return LogitAttribution(
        input=text,
        token=subject.called([number])[0],
        token_id=number,
        position=place,
        at=tokens.labels[place],
        logit=logit,
        heads={name: value.tolist() for (kind, name), value in values.items() if kind == "head"},
        feed_forward=named("feed forward"),
        embeddings=named("embedding"),
        biases=named("bias"),
        remainder=remainder,
        interventions=active_interventions(model),
    )


def _token_id(tokens: TokenInput, token: int | str | None) -> int | None:
    if token is None:
        return None
    texts = getattr(tokens.subject.adapter, "texts", None)
    if isinstance(token, int):
        size = int(unwrap(tokens.subject.model).config.vocab_size)  # type: ignore[union-attr, arg-type]
        if not 0 <= token < size:
            raise InputError(f"token={token} is not in the vocabulary: choose 0 to {size - 1}, or a text")
        return token
    ids = [] if texts is None else texts.target_ids(token)
    if not ids:
        raise InputError(f"text {token!r} contains no token: give another text")
    return int(ids[0])


class _FrozenActivations(TorchFunctionMode):
    """Replaces each activation after the body with a multiplication by the constant output / input."""

    after_body = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.after_body and func in ACTIVATIONS and args[0].requires_grad:
            return _same_value(result, args[0] * _ratio(result, args[0]))
        return result


def _ratio(output: Tensor, states: Tensor) -> Tensor:
    return torch.where(states == 0, 0.0, output / states).detach()


def _same_value(value: Tensor, linear: Tensor) -> Tensor:
    """Return `value` bit for bit, with the gradients of `linear`."""
    return value.detach() + (linear - linear.detach())


@dataclass
class _Parts:
    """The outputs that are added to the state in one pass, as leaves of a graph of direct paths only."""

    tokens: TokenInput
    leaves: list[tuple[tuple[str, str], Tensor]] = field(default_factory=list)
    """Kind, name and value of each part."""

    def __post_init__(self) -> None:
        subject = self.tokens.subject
        self.model: Any = unwrap(subject.model)
        body = getattr(self.model, "base_model", self.model)
        if body is self.model:
            raise InputError(f"{type(self.model).__name__} names no body without output head (base_model_prefix)")
        self.body: nn.Module = body
        self.projections = head_projections(subject.model, subject.layers)
        self.heads = {layer.name: layer.heads for layer in subject.layers}
        for name, module in body.named_modules():
            if any(parameter.dim() > 2 for parameter in module.parameters(recurse=False)):
                raise InputError(
                    f"{name} ({type(module).__name__}) has no matrix, so its contribution cannot be separated"
                )
        unknown = [name for name in self.heads if name not in self.projections]
        if unknown or not self.heads:
            raise InputError(
                f"the projection after the heads of {unknown[0] if unknown else 'no layer'} is not known"
            )

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Collect the parts inside the block."""
        inside = set(self.body.modules())
        projections = {id(module): name for name, module in self.projections.items()}
        hooks: list[Any] = []
        frozen = _FrozenActivations()

        def after(module: nn.Module, function: Any) -> None:
            hooks.append(module.register_forward_hook(DetachableHook(function)))

        def before(module: nn.Module, function: Any) -> None:
            hooks.append(module.register_forward_pre_hook(DetachableHook(function)))

        # In the body, activations belong to feed-forward layers, whose outputs are parts as a whole.
        after(self.body, lambda *_: setattr(frozen, "after_body", True))
        wrapped: set[nn.Module] = set()
        for full_name, module in self.model.named_modules():
            name = short_name(full_name)
            if module in wrapped:
                continue
            if id(module) in projections:
                before(module, partial(self._split_heads, projections[id(module)]))
                after(module, partial(self._separate_bias, name))
            elif isinstance(module, nn.Embedding):
                after(module, partial(self._add_output, "embedding", name))
            elif _is_norm(module):
                after(module, partial(self._freeze_norm, name))
            elif _is_linear(module) and module in inside:
                before(module, lambda module, args: (args[0].detach(), *args[1:]))
                after(module, partial(self._add_output, "feed forward", name))
            elif _is_linear(module):
                after(module, partial(self._separate_bias, name))
            else:
                continue
            wrapped.update(module.modules())  # a layer inside an adapter is no part
        with remove_hooks(hooks), frozen:
            yield

    def values(self, gradients: Sequence[Tensor | None]) -> dict[tuple[str, str], Tensor]:
        """Return the value of each part, by kind and name: (H) of heads, otherwise one number."""
        values: dict[tuple[str, str], Tensor] = {}
        for ((kind, name), leaf), gradient in zip(self.leaves, gradients, strict=True):
            calls = sum(known[0] == kind and known[1].split("#")[0] == name for known in values)
            key = kind, f"{name}#{calls}" if calls else name
            if gradient is not None:
                product = (leaf.detach().double() * gradient.double()).flatten(0, -2).sum(0)
                heads = self.heads[name] if kind == "head" else 1
                values[key] = product.unflatten(0, (heads, -1)).sum(-1) if kind == "head" else product.sum()
            elif kind == "head":
                raise InputError(
                    f"the heads of {name} do not add to the logit directly: another projection follows"
                )
        return values

    def _add_leaf(self, kind: str, name: str, value: Tensor) -> Tensor:
        leaf = value.detach().requires_grad_()
        self.leaves.append(((kind, name), leaf))
        return leaf.clone()  # Falcon adds to it in place

    def _add_output(self, kind: str, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return self._add_leaf(kind, name, output)

    def _split_heads(self, name: str, module: nn.Module, args: Any) -> Any:
        return (self._add_leaf("head", name, args[0]), *args[1:])

    def _separate_bias(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        bias = getattr(module, "bias", None)
        if not isinstance(bias, Tensor):
            return None
        leaf = self._add_leaf("bias", name, bias.expand_as(output).clone())
        return _same_value(output, output - bias.detach() + leaf)

    def _freeze_norm(self, name: str, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        states = args[0]
        if not states.requires_grad:
            return None
        with torch.no_grad():
            centred = bool(torch.allclose(module.forward(states + states.std()), output, atol=1e-3, rtol=1e-3))
            direction = states - states.mean(-1, keepdim=True) if centred else states
            bias = getattr(module, "bias", None)
            scaled = output if bias is None else output - bias
            if isinstance(module, nn.LayerNorm):  # a quotient would be inexact where the direction is near 0
                scale = (direction.square().mean(-1, keepdim=True) + module.eps).rsqrt()
                ratio = scale if module.weight is None else scale * module.weight
            else:
                ratio = _ratio(scaled, direction)
        linear = (states - states.mean(-1, keepdim=True) if centred else states) * ratio
        if bias is not None:
            linear = linear + self._add_leaf("bias", name, bias.expand_as(output).clone())
        return _same_value(output, linear)


def _is_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith(("Norm", "LayerNorm", "RMSNorm"))


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__.endswith(("Linear", "Conv1D"))
