"""Models of Hugging Face's, through the interface that they offer for attention of one's own.

While such a model is recorded, its configs name one function of ours, which asks the model's own
`eager_attention_forward` for the weights: so caps, sinks, biases and grouped heads are right without our
knowing of them. A layer that nobody asked for goes on with what it had. Afterwards every config names what it
named before.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.records import Kind
from regard.foreign.keeper import Call, Keeper, Rows, rows_of
from regard.foreign.kernel import allowed_by, self_attention

NAME = "regard"
"""What the configs call our function."""
PEERS = "transformers.modeling_utils"
CONFIGS_KEY = "_attn_implementation_internal"
SOURCES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""What layers call that which another sequence is read from."""

Output = tuple[Tensor, Tensor | None]


def is_peer(module: nn.Module) -> bool:
    """Say whether a module is a model of Hugging Face's; transformers is not imported for that."""
    peers = sys.modules.get(PEERS)
    return peers is not None and isinstance(module, peers.PreTrainedModel)


def asks_interface(module: nn.Module) -> bool:
    """Say whether a module lets the interface choose what computes its attention."""
    return _eager(type(module)) is not None


def _eager(kind: type) -> Any:
    """Return the eager function of a class of layers, found once."""
    if kind not in _EAGER:
        _EAGER[kind] = _find_eager(kind)
    return _EAGER[kind]


_EAGER: dict[type, Any] = {}


def _find_eager(kind: type) -> Any:
    """Return the eager function that stands beside the code of a layer; None for what asks no interface."""
    for base in kind.__mro__:
        for function in vars(base).values():
            if inspect.isfunction(function) and base.__module__ != PEERS:
                function = inspect.unwrap(function)
                if "ALL_ATTENTION_FUNCTIONS" in function.__code__.co_names:
                    return function.__globals__.get("eager_attention_forward")
    return None


class _Switched:
    """A config that names our function, as long as anybody records one of its models."""

    def __init__(self, config: Any) -> None:
        self.config, self.before, self.count = config, getattr(config, CONFIGS_KEY), 0


_switched: dict[int, _Switched] = {}
_lock = threading.Lock()
_local = threading.local()


@contextmanager
def through_interface(model: nn.Module, keeper: Keeper) -> Iterator[set[str]]:
    """Record in the block those layers of a model that ask the interface; yields their names."""
    layers = {name: module for name, module in model.named_modules() if asks_interface(module)}
    if not layers:
        yield set()
        return
    _register()
    configs = _configs(model)
    _switch(configs)
    recording = _Recording(keeper, {id(module): name for name, module in layers.items()})
    hooks = [
        module.register_forward_pre_hook(ReadsFrom(recording), with_kwargs=True) for module in layers.values()
    ]
    here = _here()
    here.append(recording)
    try:
        yield set(layers)
    finally:
        here.remove(recording)
        for hook in hooks:
            hook.remove()
        _switch_back(configs)


def _configs(model: nn.Module) -> list[Any]:
    """Return the configs of all models of Hugging Face's in which a layer asks the interface."""
    found: dict[int, Any] = {}
    for peer in filter(is_peer, model.modules()):
        if any(map(asks_interface, peer.modules())):
            for module in peer.modules():
                config = getattr(module, "config", None)
                if hasattr(config, CONFIGS_KEY):
                    found[id(config)] = config
    return list(found.values())


def _switch(configs: Sequence[Any]) -> None:
    with _lock:
        for config in configs:
            each = _switched.setdefault(id(config), _Switched(config))
            each.count += 1
            setattr(config, CONFIGS_KEY, NAME)


def _switch_back(configs: Sequence[Any]) -> None:
    with _lock:
        for config in configs:
            each = _switched[id(config)]
            each.count -= 1
            if not each.count:
                setattr(config, CONFIGS_KEY, each.before)
                del _switched[id(config)]


def _register() -> None:
    """Tell transformers of our function; what masks it gets are those of the eager one."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)


def _here() -> "list[_Recording]":
    """Return who records in this thread."""
    if not hasattr(_local, "recordings"):
        _local.recordings = []
    found: list[_Recording] = _local.recordings
    return found


class _Recording:
    """One recording of one model."""

    def __init__(self, keeper: Keeper, names: dict[int, str]) -> None:
        self.keeper, self.names = keeper, names
        self.crossing: set[int] = set()
        """The layers that read from another sequence."""


class ReadsFrom:
    """Notes of a layer that is about to run whether it reads from another sequence. A copy of it does nothing."""

    def __init__(self, recording: _Recording | None = None) -> None:
        self.recording = recording

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return ReadsFrom, ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Look at what the layer is given."""
        if self.recording is None or not self.recording.keeper.passes.here:
            return
        parameters = inspect.signature(module.forward).parameters
        given = dict(zip(parameters, args, strict=False)) | kwargs
        self.recording.crossing.discard(id(module))
        if any(given.get(each) is not None for each in SOURCES):
            self.recording.crossing.add(id(module))


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> Output:
    """Attend as the model's own eager function does, and hand its weights over to whoever asked for them."""
    if attention_mask is None and options.get("is_causal") and query.shape[2] > 1:
        attention_mask = _causal(query, key)
    inputs = _Inputs(module, query, key, value, attention_mask, options)
    asked = []
    for recording in _here():
        layer = recording.names.get(id(module))
        name = None if layer is None else recording.keeper.next(layer)
        if name is not None:
            asked.append((recording, name))
    exact = query.dtype in (torch.bfloat16, torch.float16)
    if not asked or exact or all(recording.keeper.recorder.partial for recording, _ in asked):
        output, weights = inputs.as_before()
        rows: Rows = inputs.weights
    else:
        output, weights = inputs.eager()
        if inputs.some_see_nothing():  # of which the kernel makes something else
            output, _ = inputs.as_before()
        rows = inputs.weights if weights is None else _known(weights, inputs.allowed)
    for recording, name in asked:
        with torch.no_grad():
            recording.keeper.keep(name, inputs.call(rows, recording))
    return output, weights


def _known(weights: Tensor, allowed: Tensor | None) -> Rows:
    return lambda chosen: (weights[:, :, chosen], allowed if allowed is None else rows_of(allowed, chosen))


def _causal(query: Tensor, key: Tensor) -> Tensor:
    ones = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
    return ones.tril(key.shape[2] - query.shape[2])[None, None]


class _Inputs:
    """What one call of the interface was given."""

    def __init__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any
    ) -> None:
        self.module, self.query, self.key, self.value, self.mask = module, query, key, value, mask
        self.options = options
        self.allowed = None if mask is None else allowed_by(mask)[..., : key.shape[2]]

    def eager(self) -> Output:
        """Attend as the model's own function does."""
        found: Output = _eager(type(self.module))(
            self.module, self.query, self.key, self.value, _bias(self.mask, self.query), **self.options
        )
        return found

    def some_see_nothing(self) -> bool:
        """Say whether some query has nothing to attend, as padding in a window has."""
        return self.allowed is not None and not bool(self.allowed.any(-1).all())

    def as_before(self) -> Output:
        """Attend with what the model had before: the fused kernel, or else its own function."""
        switched = _switched.get(id(getattr(self.module, "config", None)))
        if switched is None or switched.before != "sdpa":
            return self.eager()
        from transformers import AttentionInterface

        options = self.options if self.mask is not None else self.options | {"is_causal": False}
        mask = self.mask
        if mask is not None and self.allowed is not None and mask.dtype != torch.bool:
            mask = mask.masked_fill(~self.allowed, float("-inf"))
        kernel: Any = AttentionInterface._global_mapping["sdpa"]
        watched = [recording.keeper.passes for recording in _here()]
        for passes in watched:
            passes.seen_elsewhere = True
        try:
            found: Output = kernel(self.module, self.query, self.key, self.value, mask, **options)
        finally:
            for passes in watched:
                passes.seen_elsewhere = False
        return found

    def weights(self, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries, of a softmax in float32 or better, and their mask."""
        queries, numbers = self.query.shape[2], _numbers(self.query)

        def some(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return numbers(rows_of(value, chosen) if value.dim() == 4 and value.shape[2] == queries else value)

        query, mask = numbers(self.query[:, :, chosen]), self.mask
        bias = None if mask is None else rows_of(mask if mask.dtype == torch.bool else numbers(mask), chosen)
        options = {name: some(value) for name, value in self.options.items()} | {"dropout": 0.0}
        _, weights = _eager(type(self.module))(
            self.module, query, numbers(self.key), numbers(self.value), _bias(bias, query), **options
        )
        return weights, None if self.allowed is None else rows_of(self.allowed, chosen)

    def call(self, rows: Rows, recording: _Recording) -> Call:
        """Describe the call for the keeper."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        crossing = id(self.module) in recording.crossing
        first = 0
        if not crossing and _slides(self.module, recording.keeper.passes.cache):
            first = max(recording.keeper.passes.start + queries - keys, 0)
        return Call(queries=queries, rows=rows, kind=self._kind(crossing), first_key=first)

    def _kind(self, crossing: bool) -> Kind:
        if crossing:
            return "cross"
        if getattr(self.module, "is_causal", False) or getattr(self.module, "is_decoder", False):
            return "decoder"
        return self_attention(self.allowed, self.query.shape[2])


def _slides(module: nn.Module, cache: Any) -> bool:
    """Say whether a layer's cache forgets what lies before its window."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    index = getattr(module, "layer_idx", None)
    return index is not None and index < len(layers) and bool(getattr(layers[index], "is_sliding", False))


def _numbers(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what makes numbers of half precision into float32."""
    exact = query.dtype in (torch.bfloat16, torch.float16)
    return lambda values: values.float() if exact and values.is_floating_point() else values


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """Return what the eager function adds to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
