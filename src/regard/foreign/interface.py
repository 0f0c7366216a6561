"""Models of Hugging Face's, through the interface that they offer for attention of one's own.

While such a model is recorded, its configs name one function of ours, which asks the model's own
`eager_attention_forward` for the weights: so caps, sinks, biases and grouped heads are right without our
knowing of them. A layer that nobody asked for goes on with what it had. Afterwards every config names what it
named before.
"""

import inspect
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.foreign.inputs import PEERS, Inputs, Output, eager_of
from regard.foreign.keeper import Keeper, Rows, rows_of
from regard.foreign.passes import unseen_elsewhere

NAME = "regard"
"""What the configs call our function."""
CONFIGS_KEY = "_attn_implementation_internal"
SOURCES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "encoder_states")
"""What layers call that which another sequence is read from."""


def is_peer(module: nn.Module) -> bool:
    """Say whether a module is a model of Hugging Face's; transformers is not imported for that."""
    peers = sys.modules.get(PEERS)
    return peers is not None and isinstance(module, peers.PreTrainedModel)


def asks_interface(module: nn.Module) -> bool:
    """Say whether a module lets the interface choose what computes its attention."""
    return eager_of(type(module)) is not None


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
    layers = {name: module for name, module in keeper.passes.modules.items() if asks_interface(module)}
    if not layers:
        yield set()
        return
    _register()
    configs = _configs(keeper.passes.modules.values())
    _switch(configs)
    fused = all(_switched[id(config)].before == "sdpa" for config in configs)
    recording = _Recording(keeper, {id(module): name for name, module in layers.items()}, fused=fused)
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


def _configs(modules: Iterable[nn.Module]) -> list[Any]:
    """Return the configs of all models of Hugging Face's in which a layer asks the interface."""
    found: dict[int, Any] = {}
    walked: set[int] = set()
    for peer in filter(is_peer, modules):
        if id(peer) in walked:  # as a part of another one
            continue
        parts = list(peer.modules())
        walked.update(map(id, parts))
        if any(map(asks_interface, parts)):
            for module in parts:
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
    """Tell transformers of our function, and of what masks it gets."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _mask)


def _mask(*given: Any, **options: Any) -> Tensor | None:
    """Return the masks of the eager function; of models that had the fused kernel, where not all weights are
    wanted at once, those of that one: a quarter as large, and none where only the future is forbidden."""
    from transformers.masking_utils import eager_mask, sdpa_mask

    found: Tensor | None
    found = sdpa_mask(*given, **options) if _spares_masks() else eager_mask(*given, **options)
    return found


def _spares_masks() -> bool:
    """Say whether masks are those of the fused kernel."""
    here = _here()
    return bool(here) and all(recording.fused and recording.keeper.by_rows for recording in here)


def _here() -> "list[_Recording]":
    """Return who records in this thread."""
    if not hasattr(_local, "recordings"):
        _local.recordings = []
    found: list[_Recording] = _local.recordings
    return found


class _Recording:
    """One recording of one model."""

    def __init__(self, keeper: Keeper, names: dict[int, str], *, fused: bool) -> None:
        self.keeper, self.names = keeper, names
        self.fused = fused
        """Whether all its models had the fused kernel before."""
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
        kind: Any = type(module)
        given = dict(zip(taken_by(kind), args, strict=False)) | kwargs
        self.recording.crossing.discard(id(module))
        if any(given.get(each) is not None for each in SOURCES):
            self.recording.crossing.add(id(module))


@cache
def taken_by(kind: Any) -> tuple[str, ...]:
    """Return the names of what modules of a class are called with."""
    return tuple(inspect.signature(kind.forward).parameters)[1:]


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> Output:
    """Attend as the model's own eager function does, and hand its weights over to whoever asked for them."""
    skipped = attention_mask is None and _spares_masks()
    inputs = Inputs(module, query, key, value, attention_mask, options, skipped=skipped)
    asked = []
    for recording in _here():
        layer = recording.names.get(id(module))
        name = None if layer is None else recording.keeper.next(layer)
        if name is not None:
            asked.append((recording, name))
    touching = [recording for recording, _ in asked if recording.keeper.touches]
    exact = query.dtype in (torch.bfloat16, torch.float16)
    rows: Rows = inputs.weights
    weights: Tensor | None
    if touching:
        output, changed = _touched(inputs, touching)
        rows, weights = _known(changed, inputs.allowed), changed
    elif not asked or exact or all(recording.keeper.by_rows for recording, _ in asked):
        output, weights = _as_before(inputs)
        inputs.forget_mask()
    else:
        with unseen_elsewhere(recording.keeper.passes for recording in _here()):
            output, weights = inputs.eager()
        if weights is not None:
            rows = _known(weights, inputs.allowed)
        if inputs.some_see_nothing():  # of which the kernel makes something else
            output, _ = _as_before(inputs)
    inputs.forget_values()
    for recording, name in asked:
        with torch.no_grad():
            crossing = id(module) in recording.crossing
            recording.keeper.keep(name, inputs.call(rows, crossing, recording.keeper.passes))
    return output, weights


def _touched(inputs: Inputs, recordings: "Sequence[_Recording]") -> tuple[Tensor, Tensor]:
    """Attend with weights that have been changed, in the order in which the changes were asked for."""
    with unseen_elsewhere(recording.keeper.passes for recording in _here()):
        output, weights = inputs.eager()
    if weights is None:
        raise InputError(
            f"the weights of {type(inputs.module).__name__} cannot be changed: it does not tell them"
        )
    for recording in recordings:
        keeper = recording.keeper
        first = inputs.first_key(id(inputs.module) in recording.crossing, keeper.passes)
        weights = keeper.changed(weights, inputs.allowed, first)
    return inputs.context(weights).to(output.dtype), weights


def _as_before(inputs: Inputs) -> Output:
    """Attend with what the model had before: the fused kernel, or else its own function."""
    switched = _switched.get(id(getattr(inputs.module, "config", None)))
    if switched is None or switched.before != "sdpa":
        with unseen_elsewhere(recording.keeper.passes for recording in _here()):
            return inputs.eager()
    with unseen_elsewhere(recording.keeper.passes for recording in _here()):
        return inputs.fused()


def _known(weights: Tensor, allowed: Tensor | None) -> Rows:
    return lambda chosen: (weights[:, :, chosen], allowed if allowed is None else rows_of(allowed, chosen))
