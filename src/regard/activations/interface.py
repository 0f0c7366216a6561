"""One interface to what a model computes inside: names of activations, record them, replace them.

    regard.activation_names(model, inputs)
    with regard.record(model, "*.weights", "layer.3.z") as cache:
        model(inputs)
    with regard.replace(model, "layer.3.z", lambda z: z * 0):
        model(inputs)

    resid_pre, resid_post   residual stream before and after a layer          (B, T, D)
    q, k, v                 as the scores and the weighted sum read them      (B, T, H, d)
    scores                  before mask and normalizer                        (B, H, Tq, Tk)
    weights                 after the normalizer                              (B, H, Tq, Tk)
    z                       context of each head, as the next matrix reads it (B, T, H, d)
    out                     output of attention, after that matrix            (B, T, D)
    mlp_out                 output of the feed-forward layer                  (B, T, D)

Queries and keys are those after rotary positions and norms. Heads that share keys have one head of `k` and `v`.
Layers of Regard pass their activations to their hook. In other models, the mechanisms of `weights` pass
queries, keys, values, scores, weights and contexts; blocks and feed-forward layers are modules with hooks, and
the output of attention is that of the module that reads the contexts.

Names have the number of a layer in its stack. A model with one stack has `layer.0.z`, `layer.1.z`, ...; one with
an encoder and a decoder has `encoder.layer.0.z`, `decoder.layer.0.z` and, for the second attention of a layer,
`decoder.layer.0.cross.z`. Other stacks, and attention outside a stack, have their names in the model.
"""

import math
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cache, partial
from inspect import signature
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.activations.attention_axes import active_probe
from regard.activations.capture_session import (
    AttentionCall,
    AttentionInputs,
    CaptureSession,
    mask_from_bias,
    relative_difference,
)
from regard.activations.forward_tracker import ForwardTracker
from regard.activations.modules import parameter_names, resolve_module
from regard.activations.transformers_attention import find_eager_function
from regard.activations.weights import capture, record_weights
from regard.arguments import public
from regard.attention.blocks import Block
from regard.attention.functional import attention_weights
from regard.attention.layer import Attention, AttentionLayer, attach_hooks, disable_compile, with_receiver
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.attention.records import Recorder, Records, merge_levels
from regard.errors import InputError, unknown_choice

ATTENTION = re.compile(r"Attention|Attn")
"""Parts of class names of attention layers."""
CROSS = re.compile(r"cross|enc|multihead", re.I)
"""Parts of names of layers that attend to another sequence."""


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a normalization layer, judged by the name of its class."""
    return type(module).__name__.endswith(("Norm", "LayerNorm", "RMSNorm"))


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear layer, judged by its class."""
    return isinstance(module, nn.Linear) or type(module).__name__.endswith(("Linear", "Conv1D"))


def find_block(modules: Mapping[str, nn.Module], layer: str) -> str | None:
    """Return the name of the block that holds a layer; None if the layer is in no list of modules."""
    parts = layer.split(".")
    for end in range(1, len(parts)):
        if isinstance(modules.get(".".join(parts[:end])), nn.ModuleList | nn.Sequential):
            return ".".join(parts[: end + 1])
    return None


class LayerNames:
    """The prefixes of the names of activations of one model."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = modules
        known = AttentionLayer | nn.MultiheadAttention
        attending = [
            name
            for name, module in modules.items()
            if isinstance(module, known) or ATTENTION.search(type(module).__name__) or find_eager_function(type(module))
        ]
        parents = {name[:end] for name in attending for end in range(len(name)) if name[end] == "."}
        parents |= {""} if len(attending) > 1 else set()
        self.attention = [name for name in attending if name not in parents]
        """Names of attention layers: the innermost modules that attend."""
        self._attending = attending
        self._order = {name: place for place, name in enumerate(modules)}
        self._known: dict[str, str] = {}
        self._block_of: dict[str, str | None] = {}
        self._feed_forward: dict[str, str | None] = {}
        blocks = map(self.block_of, self.attention)
        self.blocks = list(dict.fromkeys(block for block in blocks if block is not None))
        if not self.attention:  # the code of the blocks may attend itself
            children = (name for name in modules if find_block(modules, f"{name}.") == name)
            self.blocks = [name for name in children if name]
        stacks = list(dict.fromkeys(block.rpartition(".")[0] for block in self.blocks))
        sides = [[side for side in ("encoder", "decoder") if side in stack.split(".")] for stack in stacks]
        self._stacks: dict[str, str | None] = dict.fromkeys(stacks)
        if len(stacks) == 1:
            self._stacks = {stacks[0]: "layer"}
        elif sorted(map(tuple, sides)) == [("decoder",), ("encoder",)]:
            self._stacks = {stack: f"{side[0]}.layer" for stack, side in zip(stacks, sides, strict=True)}

    def block_of(self, name: str) -> str | None:
        """Return the block that holds a module: an own block, or a member of the outermost list of modules."""
        if name not in self._block_of:
            parts = name.split(".")
            parents = [".".join(parts[:end]) for end in range(len(parts))]
            own = [parent for parent in parents if isinstance(self.modules.get(parent), Block)]
            in_list = find_block(self.modules, name) or find_block(self.modules, f"{name}.")
            self._block_of[name] = own[-1] if own else in_list
        return self._block_of[name]

    def block(self, name: str) -> str:
        """Return the prefix of a block: `layer.0`; none if the model itself is a block."""
        if not name:
            return ""
        stack, _, number = name.rpartition(".")
        label = self._stacks.get(stack)
        return f"{label}.{number}" if label is not None else name

    def layer(self, name: str) -> str:
        """Return the prefix of an attention layer: that of its block, and `cross` for the second attention."""
        if name not in self._known:
            self._known[name] = self._find_prefix(name)
        return self._known[name]

    def _find_prefix(self, name: str) -> str:
        block = self.block_of(name)
        if block is None:
            return name
        beside = [other for other in self.attention if other != name and self.block_of(other) == block]
        if not beside or self._order[name] < min(self._order[other] for other in beside):
            return self.block(block)
        part = name.removeprefix(f"{block}.")
        return ".".join(filter(None, (self.block(block), "cross" if CROSS.search(part) else part)))

    def feed_forward(self, block: str) -> str | None:
        """Return the name of the feed-forward layer of a block; None for a block without one."""
        if block not in self._feed_forward:
            self._feed_forward[block] = find_feed_forward(self.modules, block, self._attending, ())
        return self._feed_forward[block]


def find_feed_forward(
    modules: Mapping[str, nn.Module], block: str, attention: Collection[str], projections: Collection[nn.Module]
) -> str | None:
    """Return the name of the largest module that is last in a block and is a feed-forward layer."""
    largest: list[str] = []
    for name, module in modules.items():
        inside = name.startswith(f"{block}.") if block else bool(name)
        if not inside or any(f"{name}.".startswith(f"{known}.") for known in (*attention, *largest)):
            continue
        parts = list(module.modules())
        if any(known.startswith(f"{name}.") for known in attention) or any(part in projections for part in parts):
            continue
        # BLOOM's feed-forward layer also gets the residual stream, and returns the sum.
        cls: Any = type(module)
        has_matrix = any(parameter.dim() > 1 for parameter in module.parameters()) and _required_inputs(cls) == 1
        if has_matrix and not any(isinstance(part, nn.Embedding) or is_norm(part) for part in parts):
            largest.append(name)
    return largest[-1] if largest else None


@cache
def _required_inputs(cls: Any) -> int:
    parameters = list(signature(cls.forward).parameters.values())[1:]
    return sum(parameter.default is parameter.empty and parameter.kind < 2 for parameter in parameters)


INNER = ("q", "k", "v", "scores", "weights", "z", "out")
"""Activations of an attention layer, in the order of computation."""
OUTER = ("resid_pre", "mlp_out", "resid_post")
"""Activations of a block."""
NO_SCORES = "its weights are those that a recurrence implies"
CUSTOM = "its class is not known, so the contexts of its heads cannot be separated"
OWN_CODE = "the layer computes attention in its own code, which shows only its softmax"
NOT_SEEN = "no mechanism of a recording sees it in this model"
AGREEMENT = 1e-3
"""Largest accepted difference between weights times values and the contexts, as a fraction of the largest context."""
Receive = Callable[[str, Tensor, bool], Tensor]
"""Maps the name and value of an activation, and whether the call continues the sequences of the last call, to the
value that the model uses."""


class ActivationNames(tuple[str, ...]):
    """The names of a model's activations, and why some are missing."""

    left_out: Mapping[str, str]

    def __new__(cls, names: Sequence[str], left_out: Mapping[str, str]) -> "ActivationNames":
        made = super().__new__(cls, names)
        made.left_out = left_out
        return made

    def __repr__(self) -> str:
        left_out = "".join(f"\nnot available: {name} ({reason})" for name, reason in self.left_out.items())
        return f"<ActivationNames: {', '.join(self)}{left_out}>"


@public
class Activations(Mapping[str, Tensor]):
    """Recorded activations by name, with their gradients. Steps of a generation are joined along their steps."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Tensor]] = {}
        """By name: the tensor of each call in the last pass."""
        self.left_out: dict[str, str] = {}
        """Requested activations that were not recorded, with the reason."""
        self.aliases: dict[str, str] = {}
        """Names with the name of a layer in records or of a module, such as `decoder.0.cross.z`."""

    def keep(self, name: str, value: Tensor, continues: bool) -> Tensor:
        calls = self.calls.setdefault(name, [])
        if not continues:
            calls.clear()
        # A model may add to a tensor in place. With a graph, it goes on with the copy, so that the gradient with
        # respect to the recorded tensor is that of the activation.
        calls.append(merge_levels(value)[0] if value.requires_grad else merge_levels(value)[0].clone())
        return value.clone() if value.requires_grad else value

    def __getitem__(self, name: str) -> Tensor:
        calls = self.calls[self.aliases.get(short_name(name), name)]
        kind = name.rpartition(".")[2]
        if len(calls) == 1 or kind in ("k", "v") or any(len(call) != len(calls[0]) for call in calls):
            return calls[-1]  # the last step has the keys and values of all steps
        if kind not in ("scores", "weights"):
            return torch.cat(calls, 1)
        keys, empty = calls[-1].shape[-1], -torch.inf if kind == "scores" else 0.0
        return torch.cat([F.pad(call, (0, keys - call.shape[-1]), value=empty) for call in calls], 2)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __repr__(self) -> str:
        return f"<Activations: {', '.join(self) or 'nothing yet'}>"


class Watch:
    """Passes the activations of a model whose names match to a function."""

    def __init__(self, model: nn.Module, patterns: Sequence[str], receive: Receive) -> None:
        self.model, self._receive = model, receive
        self.patterns = {*patterns, *map(short_name, patterns)}
        self.mask_kind = [kind for kind in ("mask",) if f"*.{kind}" in patterns]  # no activation: only on request
        self.tracker = ForwardTracker(model)
        self.names = LayerNames(self.tracker.modules)
        self.own = {name: module for name, module in self.tracker.modules.items() if isinstance(module, AttentionLayer)}
        self.seen: set[str] = set()
        self.calls: dict[str, str] = {}
        """By name of a layer's call in records: the prefix of its activations."""
        self.reasons: dict[str, str] = {}
        self._wanted: dict[tuple[str, str], bool] = {}
        for name, layer in self.own.items():
            known = isinstance(layer, MultiHeadAttention | Attention)
            self.reasons |= {} if known else {join(self.names.layer(name), kind): CUSTOM for kind in ("z", "out")}
            if layer.linear is not None:
                self.reasons[join(self.names.layer(name), "scores")] = NO_SCORES

    def all_names(self) -> list[str]:
        """Return the names of all activations that the structure of the model shows, in the order of layers."""
        names = []
        for block in [*self.names.blocks, None]:
            inside = [name for name in self.names.attention if self.names.block_of(name) == block]
            layers = list(dict.fromkeys(map(self.names.layer, inside)))
            layers = layers or ([] if block is None else [self.names.block(block)])
            inner = [join(layer, kind) for layer in layers for kind in INNER]
            if block is None:
                names += inner
            else:
                start, feed_forward, end = (join(self.names.block(block), kind) for kind in OUTER)
                names += [start, *inner, *[feed_forward] * (self.names.feed_forward(block) is not None), end]
        return names

    def wants(self, prefix: str, alias: str, kind: str) -> bool:
        """Return whether a pattern matches an activation, by its name or by the layer's name in records."""
        key = prefix, kind
        if key not in self._wanted:
            names = [join(name, kind) for name in (prefix, alias, short_name(alias))]
            self._wanted[key] = names[0] not in self.reasons and any(
                fnmatchcase(name, pattern) for name in names for pattern in self.patterns
            )
        return self._wanted[key]

    def receive(self, prefix: str, kind: str, value: Tensor, continues: bool) -> Tensor:
        name = join(prefix, kind)
        self.seen.add(name)
        changed = self._receive(name, value, continues)
        if changed is not value and changed.shape != value.shape:
            raise InputError(
                f"{name} is {tuple(value.shape)} and its replacement {tuple(changed.shape)}: keep the shape"
            )
        return changed

    def receive_states(self, prefix: str, kind: str, states: Tensor, continues: bool, steps_first: bool) -> Tensor:
        """Pass states (B, T, D), or (T, B, D) if `steps_first`; return their replacement in this layout."""
        turned = states.transpose(0, 1) if steps_first else states
        changed = self.receive(prefix, kind, turned, continues)
        return states if changed is turned else changed.transpose(0, 1) if steps_first else changed.clone()

    @contextmanager
    def run(self) -> Iterator[None]:
        """Watch the model inside the block. Warns about matching names that were not seen although it ran."""
        with ExitStack() as stack:
            stack.enter_context(disable_compile())
            hooks = {}
            for name, layer in self.own.items():
                prefix = self.names.layer(name)
                kinds = [kind for kind in INNER if self.wants(prefix, name, kind)] + self.mask_kind
                if kinds:
                    hooks[layer] = with_receiver(layer.hook, kinds, partial(self._receive_own, prefix))
                    self.calls[short_name(name)] = prefix
            stack.enter_context(attach_hooks(hooks))
            others = [name for name in self.names.attention if name not in self.own]
            # Regard's layers have hooks of their own; the mechanisms of a recording see all other attention.
            if others or not self.own:
                session = ActivationSession(self)
                stack.enter_context(capture(session))
                if session.wants("out"):
                    for module in self.tracker.modules.values():
                        if is_linear(module) or isinstance(module, nn.MultiheadAttention):
                            self._hook_projection(stack, session, module)
            for block in self.names.blocks:
                self._hook_block(stack, block)
            yield

    def _receive_own(self, prefix: str, kind: str, value: Tensor, step: int | None) -> Tensor:
        return self.receive(prefix, kind, value, bool(step))

    def _hook_block(self, stack: ExitStack, block: str) -> None:
        module, prefix = self.tracker.modules.get(block), self.names.block(block)
        if module is None or not any(self.wants(prefix, block, kind) for kind in OUTER):
            return
        steps_first = any(getattr(part, "batch_first", True) is False for part in module.modules())
        continues = False
        feed_forward = self.names.feed_forward(block) if self.wants(prefix, block, "mlp_out") else None

        def receive(kind: str, value: Tensor, continues: bool) -> Tensor:
            return self.receive_states(prefix, kind, value, continues, steps_first)

        def before(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
            arguments = dict(zip(parameter_names(module), args, strict=False)) | kwargs
            nonlocal continues
            continues = arguments.get("past") is not None or self.tracker.start > 0
            if not self.wants(prefix, block, "resid_pre"):
                return None
            if args:
                return (receive("resid_pre", args[0], continues), *args[1:]), kwargs
            name = next(iter(parameter_names(module)))
            return args, {**kwargs, name: receive("resid_pre", kwargs[name], continues)}

        stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        parts = {"mlp_out": feed_forward, "resid_post": block}
        for kind, name in parts.items():
            if name is not None and self.wants(prefix, block, kind):
                part = self.tracker.modules[name]
                hook = lambda module, args, output, kind=kind: change_first(  # noqa: E731
                    output, lambda value: receive(kind, value, continues)
                )
                stack.callback(part.register_forward_hook(hook).remove)

    def _hook_projection(self, stack: ExitStack, session: "ActivationSession", module: nn.Module) -> None:
        """Watch the output of a module that reads the contexts of a layer, in the passes in which it does."""
        layers: list[str | None] = []
        is_torch = isinstance(module, nn.MultiheadAttention)
        steps_first = is_torch and not module.batch_first

        def before(module: nn.Module, args: Any) -> None:
            layers.append(self.tracker.name_of(module) if is_torch else session.reader(args[0]) if args else None)

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            name = layers.pop()
            prefix = "" if name is None else self.names.layer(name)
            if name is None or not self.wants(prefix, name, "out"):
                return None

            continues = self.tracker.start > 0
            return change_first(output, lambda value: self.receive_states(prefix, "out", value, continues, steps_first))

        stack.callback(module.register_forward_pre_hook(before).remove)
        stack.callback(module.register_forward_hook(after).remove)

    def missing(self) -> dict[str, str]:
        """Return the requested activations that were not seen although the model ran, with the reason."""
        if self.patterns <= self.seen:
            return {}
        names = self.all_names()
        wanted = [name for name in names if any(fnmatchcase(name, pattern) for pattern in self.patterns)]
        shown = {name.rpartition(".")[0] for name in self.seen if name.rpartition(".")[2] == "weights"}
        reasons = {name: OWN_CODE if name.rpartition(".")[0] in shown else NOT_SEEN for name in wanted} | self.reasons
        return {name: reasons[name] for name in wanted if name not in self.seen}


class ActivationSession(CaptureSession):
    """A session that passes the activations of attention calls to a `Watch`."""

    receives = True

    def __init__(self, watch: Watch) -> None:
        super().__init__(Recorder(), watch.tracker, None)
        self.watch, self.call_name = watch, ""
        self.inputs: Callable[[], AttentionInputs] | None = None
        """Returns the inputs of the current call, from which scores are computed; None if they are not known."""
        self._context: tuple[str, Tensor] | None = None

    @property
    def intervenes(self) -> bool:  # type: ignore[override]
        """Return whether scores or weights of the current layer are wanted: they are then computed with gradients."""
        return self.wants("scores", "weights")

    def wants(self, *kinds: str) -> bool:
        """Return whether an activation of the current layer is wanted, or of any layer before the first call."""
        names = [self.call_name.partition("#")[0]] if self.call_name else self.watch.names.attention
        return any(self._is_wanted(name, *kinds) for name in names or self.watch.names.blocks)

    def _is_wanted(self, name: str, *kinds: str) -> bool:
        return any(self.watch.wants(self._prefix(name), name, kind) for kind in kinds)

    def changed_layers(self) -> Sequence[str]:
        return [name for name in self.watch.names.attention if self._is_wanted(name, "scores", "weights")]

    def concerns(self, layer: str) -> bool:
        return True

    def next_call_name(self, name: str) -> str | None:
        if self.tracker.paused or active_probe() is not None:
            return None
        self.call_name, self.inputs, self.softmax_input = self.tracker.number(name), None, None
        return self.call_name

    def _prefix(self, name: str) -> str:
        layer, mark, number = name.partition("#")
        return self.watch.names.layer(layer) + mark + number

    def receive(self, kind: str, value: Tensor) -> Tensor:
        """Pass an activation of the current call, (B, H, T, d) or (B, H, Tq, Tk), and return its replacement."""
        if not self.wants(kind) and not (kind == "z" and self.wants("out")):
            return value
        changed = value
        if self.wants(kind):
            turned = value.transpose(1, 2) if kind in ("q", "k", "v", "z") else value
            prefix = self.watch.calls[self.call_name] = self._prefix(self.call_name)
            changed = self.watch.receive(prefix, kind, turned, self.tracker.start > 0)
            changed = value if changed is turned else changed.transpose(1, 2) if turned is not value else changed
        if kind == "z":
            self._context = self.call_name.partition("#")[0], changed.transpose(1, 2).flatten()
        return changed

    def reader(self, states: Any) -> str | None:
        """Return the layer whose contexts are the states that a module reads; None if it reads others."""
        if self._context is None or not isinstance(states, Tensor) or states.numel() != self._context[1].numel():
            return None
        # The values show which module reads the contexts: the names of projections differ between architectures.
        name, context = self._context
        if not torch.equal(states.reshape(-1), context):
            return None
        self._context = None
        return name

    def change_weights(self, weights: Tensor, mask: Tensor | None, first_key: int = 0) -> Tensor:
        """Pass scores and weights, and return the weights that the layer uses."""
        if mask is not None and self.watch.mask_kind:
            self.receive("mask", mask)
        if self.wants("scores") and (scores := self._scores(weights, mask)) is not None:
            changed = self.receive("scores", scores)
            if changed is not scores:
                weights = attention_weights(changed, mask).to(weights.dtype)
        return self.receive("weights", weights)

    def _scores(self, weights: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return the scores (B, H, Tq, Tk) of the current call; None if the weights are not their softmax."""
        name = join(self._prefix(self.call_name), "scores")
        if self.inputs is None:
            if self.softmax_input is None:
                self.watch.reasons[name] = OWN_CODE
            return self.softmax_input
        query, key, _, scale, biases, cap = self.inputs()
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        with torch.autocast(query.device.type, enabled=False):
            scores = query.to(weights.dtype) @ key.to(weights.dtype).transpose(-1, -2) * scale
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        for bias in biases:
            # A bias may be a position bias and a mask at once; scores are those before the mask.
            allowed = mask_from_bias(bias)[..., : scores.shape[-1]]
            scores = scores + bias[..., : scores.shape[-1]].to(scores.dtype).where(allowed, 0.0)
        difference = relative_difference(attention_weights(scores.detach(), mask), weights.detach())
        if difference is not None and difference > _rounding(query.detach() * scale, key.detach()):
            self.watch.reasons[name] = "its weights are not a softmax of products of query and key"
            return None
        return scores

    def record_call(self, name: str, call: AttentionCall) -> None:
        """Record nothing: the activations have been passed."""


def _rounding(query: Tensor, key: Tensor) -> float:
    """Return by what share rounding of scores can change a weight; with scores of a million, it is all of it."""
    largest = float(query.norm(dim=-1).max() * key.norm(dim=-1).max())
    return math.expm1(min(8 * torch.finfo(query.dtype).eps * largest, 1.0))


def join(prefix: str, kind: str) -> str:
    return f"{prefix}.{kind}" if prefix else kind


def change_first(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change the output of a module, or the first of several outputs."""
    if isinstance(output, Tensor):
        return change(output)
    changed = (change(output[0]), *output[1:])
    return output._replace(**{output._fields[0]: changed[0]}) if hasattr(output, "_replace") else changed


@public
def activation_names(model: Any, *args: Any, **kwargs: Any) -> ActivationNames:
    """Return the names of the activations of a model; `left_out` says why others are missing.

    `model`: a module, a run, or a result of `look`. `args`, `kwargs`: inputs of the model, on which a model that
    Regard did not build runs once; those of a result of `look` are known. Raises `InputError` without inputs.

    >>> from regard.attention.blocks import EncoderLayer
    >>> activation_names(EncoderLayer(12, 3, 24))[:3]
    ('resid_pre', 'q', 'k')
    """
    module, _ = resolve_module(model)
    watch = Watch(module, ["*"], lambda name, value, continues: value)
    run = partial(module, *args, **kwargs) if args or kwargs else getattr(model, "run_example", None)
    if run is None and watch.own:
        return ActivationNames([name for name in watch.all_names() if name not in watch.reasons], watch.reasons)
    if run is None:
        raise InputError(
            f"{type(module).__name__} shows its activations when it runs: give its inputs too, as in "
            "activation_names(model, input_ids=ids)"
        )
    with torch.no_grad(), watch.run():
        run()
    order = watch.all_names()
    seen = sorted(watch.seen, key=lambda name: order.index(name) if name in order else len(order))
    return ActivationNames(seen, watch.missing())


@overload
def record(
    model: Any,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    modules: str | None = None,
    tokenizer: Any = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> AbstractContextManager[Records]: ...
@overload
def record(model: Any, pattern: str, /, *patterns: str) -> AbstractContextManager[Activations]: ...
@public
def record(
    model: Any,
    *patterns: str,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    modules: str | None = None,
    tokenizer: Any = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> AbstractContextManager[Any]:
    """Record what a model computes inside a block: the attention weights of all layers, or activations by name.

        with regard.record(model) as records:
            model(inputs)
        records["decoder.0.self_attention"].weights  # (B, H, Tq, Tk)

        with regard.record(model, "*.weights", "layer.3.z") as cache:
            model(inputs)
        cache["layer.3.z"]  # (B, T, H, d)

    `model`: a module, a run, or the result of `regard.look`. `patterns`: names of activations, or patterns with
    `*` (see `activation_names`); gradients flow through recorded activations. Without patterns, the options are
    those of `regard.activations.weights.record_weights`: `layers`, `heads` and `rows` (query steps) limit the
    computation, `modules` names modules through which weights pass that Regard cannot find, and `tokenizer` and
    the labels name queries and keys.

    The next pass replaces the activations of the last one; the steps of a generation are joined. `left_out` names
    what was not recorded, with the reason, and a warning says so. Raises `InputError` for an unknown name, and,
    while the model runs, for a head or row out of range.
    """
    options: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("model", "patterns")}
    if not patterns:
        return record_weights(model, **options)
    if given := [name for name, value in options.items() if value is not None]:
        raise InputError(f"{', '.join(given)} select weights: leave them out, or the names of activations")
    cache = Activations()
    return _watch(resolve_module(model)[0], patterns, cache.keep, cache)


@public
def replace(model: Any, name: str, function: Callable[[Tensor], Tensor]) -> AbstractContextManager[None]:
    """Replace activations inside a block by what a function returns for them.

        with regard.replace(model, "layer.3.z", lambda z: z * 0):
            model(inputs)

    `name`: the name of an activation, or a pattern. `function` receives each call's tensor and returns one of the
    same shape; gradients flow through it. Nested blocks apply the outer function first. Raises `InputError` for
    an unknown name, and for a result of another shape.
    """
    return _watch(resolve_module(model)[0], [name], lambda name, value, continues: function(value), None)


@contextmanager
def _watch(model: nn.Module, patterns: Sequence[str], receive: Receive, cache: Activations | None) -> Iterator[Any]:
    watch = Watch(model, patterns, receive)
    places: list[tuple[str, str, tuple[str, ...]]]
    places = [(name, watch.names.layer(name), INNER) for name in watch.names.attention]
    places += [(name, watch.names.block(name), OUTER) for name in watch.names.blocks]
    aliases = {join(short_name(name), kind): join(prefix, kind) for name, prefix, kinds in places for kind in kinds}
    if cache is not None:
        cache.aliases = aliases
    # `all_names` looks for the feed-forward layer of each block, which takes time: first without these.
    known = [*aliases, *(name for name in aliases.values() if not name.endswith("mlp_out"))]
    for pattern in patterns:
        matches = partial(fnmatchcase, pat=short_name(pattern))
        if not any(map(matches, known)) and not any(map(matches, watch.all_names())):
            raise unknown_choice("activation", pattern, watch.all_names())
        if pattern in watch.reasons:
            raise InputError(f"{pattern} is not available: {watch.reasons[pattern]}")
    with watch.run():
        yield cache
    if watch.tracker.ran or watch.seen:
        missing = watch.missing()
        if cache is not None:
            cache.left_out = missing
        if missing:
            name, reason = next(iter(missing.items()))
            more = f", and {len(missing) - 1} more (left_out)" if len(missing) > 1 else ""
            warnings.warn(
                f"{'not replaced' if cache is None else 'not recorded'}: {name} ({reason}){more}", stacklevel=4
            )


@torch.no_grad()
def read_values(model: nn.Module, run: Callable[[], object]) -> dict[str, Tensor]:
    """Run a model on one input; return the values (H, Tk, Dv) whose weighted sums are the contexts of a layer.

    By name of the layer in records; a layer that runs several times is `name`, `name#1`, ... Layers whose
    contexts are not sums of weighted values, such as those with a gate, are left out.
    """
    cache = Activations()
    watch = Watch(model, ["*.v", "*.weights", "*.z", "v", "weights", "z"], cache.keep)
    with watch.run():
        run()
    values = {}
    for layer, prefix in watch.calls.items():
        if all(join(prefix, kind) in cache for kind in ("v", "weights", "z")):
            weights, context, value = (
                cache[join(prefix, "weights")][0],
                *(cache[join(prefix, kind)][0].transpose(0, 1) for kind in ("z", "v")),
            )
            value = value.repeat_interleave(len(weights) // len(value), 0)
            if value.shape[1:] == (weights.shape[-1], context.shape[-1]):
                difference = float((weights.to(value.dtype) @ value - context).abs().max())
                if difference <= AGREEMENT * max(float(context.abs().max()), 1e-6):
                    values[layer] = value
    return values
