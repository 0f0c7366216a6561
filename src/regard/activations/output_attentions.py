"""Capture transformers models that compute attention in their own code, through the weights that they return.

Inside the block the models run with `output_attentions`; the caller still receives only the outputs that it
requested. A tensor of weights gets the name of the first module that returned it. These models do not return
their masks. A key is treated as masked for a query if its weight is zero in every head. A row whose keys are
all masked has equal weights, because all its scores are equal. If the keys of this row are padding, the row is
recorded with zero weights and a mask that allows no key.

Longformer and LED (Beltagy et al. 2020) return the weights of a window and of a few global keys.
`expand_windows` expands these weights into rows over all keys.
"""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.activations.attention_axes import SELECTED
from regard.activations.capture_session import (
    AttentionCall,
    CaptureSession,
    are_attention_weights,
    nonzero_keys,
    self_attention_kind,
)
from regard.activations.forward_tracker import ForwardTracker, and_parents, capturing_elsewhere, remove_hooks
from regard.activations.modules import is_transformers_model
from regard.activations.torch_calls import WINDOW_ATTRIBUTE, last_changed_weights
from regard.activations.transformers_attention import find_eager_function, names_in_code, uses_interface
from regard.attention.records import Kind

ATTENTIONS = "attentions"
"""Suffix of the names of weights in a model's output."""
STATES = "hidden_states"
EVEN = 1e-6
"""Largest difference between the weights of a row with equal scores: a few rounding errors of float32."""
NEEDS_STATES = ("maskformer-swin",)
"""Model types that return weights only together with hidden states."""
RETURN_SCORES = ("prophetnet", "squeezebert")
"""Model types that return scores before the softmax instead of weights."""
GLOBAL = "is_index_global_attn"
"""Argument of Longformer's layers, (B, T): the steps that attend to all steps and to which all steps attend."""


def applies(session: CaptureSession) -> bool:
    """Return whether any part of the model computes attention in its own code and the session changes no weights."""
    return not session.intervenes and bool(_attending_models(session))


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture the weights that transformers models return inside the block."""
    tracker, hook = session.tracker, OutputAttentionsHook(session)
    hooks: list[Any] = []
    for name, module in tracker.modules.items():
        if hasattr(module, WINDOW_ATTRIBUTE) and GLOBAL in inspect.signature(module.forward).parameters:
            hooks.append(tracker.hook_before(module, partial(hook.note_global_steps, name)))
            hooks.append(tracker.hook_after(module, partial(hook.note_global_rows, name)))
    for model in _attending_models(session):
        hooks.append(tracker.hook_before(model, hook.begin))
        hooks.append(tracker.hook_after(model, hook.end, always=True))
    tracker.listeners.append(hook.note_output)
    try:
        with remove_hooks(hooks):
            yield set()
    finally:
        tracker.listeners.remove(hook.note_output)


def _attending_models(session: CaptureSession) -> list[nn.Module]:
    models, root = session.tracker.of_classes(is_transformers_model), session.tracker.model
    classes: Any = session.tracker.by_class.keys()
    return [m for m in models if _computes_attention(m, classes if m is root else set(map(type, m.modules())))]


def _computes_attention(model: Any, classes: Collection[Any]) -> bool:
    """Return whether a transformers model with modules of these classes computes attention in its own code."""
    if getattr(model.config, "_attn_implementation", None) == "sdpa" and any(
        "scaled_dot_product_attention" in names_in_code(cls) for cls in classes
    ):
        return False  # `torch_calls` captures it
    return not any(map(find_eager_function, classes)) or any(map(_computes_softmax, classes))


def _computes_softmax(cls: Any) -> bool:
    """Return whether a class with "attention" in its name calls a softmax and does not use the interface."""
    if find_eager_function(cls) is not None or "att" not in cls.__name__.lower():
        return False
    return any("softmax" in name.lower() for name in names_in_code(cls))


class OutputAttentionsHook:
    """Hooks that request the weights from the outermost model and record them."""

    def __init__(self, session: CaptureSession) -> None:
        self.session, self.depth = session, 0
        self.global_steps: dict[str, Tensor] = {}
        """By Longformer layer: (B, T) bool, the steps that attend to all steps."""
        self.global_rows: dict[str, Tensor | None] = {}
        """By Longformer layer: (B, H, G, T), the weights of the global steps; None without such steps."""
        self.requested: dict[str, Any] = {}
        """Output options of the caller."""
        self.inputs: dict[str, Any] = {}
        """Inputs of the outermost model, by the names of its parameters."""
        self.returned: dict[int, tuple[str, Tensor]] = {}
        """By the address of a tensor: the innermost module that returned the tensor, and the tensor."""
        self.recorded: set[str] = set()
        """Layers whose returned weights were recorded in the last pass."""

    def begin(self, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Request the weights from the outermost model, as fields of a named output."""
        self.depth += 1
        if self.depth > 1:
            return None
        self.returned.clear()
        self.session.unconfirmed = {}
        parameters = inspect.signature(model.forward).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        config: Any = model.config
        self.inputs = dict(zip(parameters, args, strict=False)) | kwargs

        def requested(name: str, default: bool) -> Any:
            value = kwargs.get(name)
            return getattr(config, name, default) if value is None else value

        self.requested = {
            "output_attentions": requested("output_attentions", False),
            "return_dict": requested("return_dict", True),
        }
        if getattr(config, "model_type", None) in NEEDS_STATES:
            self.requested["output_hidden_states"] = requested("output_hidden_states", False)
        return args, kwargs | {name: True for name in self.requested if takes_all or name in parameters}

    def note_output(self, name: str, module: nn.Module, output: Any) -> None:
        """Store the tensors that a module returns."""
        if not self.depth:
            return
        values = output.values() if isinstance(output, dict) else output
        for value in values if isinstance(output, dict | tuple | list) else ():
            if isinstance(value, Tensor) and value.dim() > 2 and value.is_floating_point():
                # Compare storages, because a model may return a view of the weights that its layer returned.
                address = value.untyped_storage().data_ptr()
                inner = self.returned.get(address)
                if inner is None or not inner[0].startswith(f"{name}." if name else ""):
                    self.returned.pop(address, None)
                    self.returned[address] = name, value

    def note_global_steps(self, name: str, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self.global_steps[name] = kwargs[GLOBAL]

    def note_global_rows(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.global_rows[name] = output[2] if len(output) > 2 else None

    def end(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Record the returned weights, and return the outputs that the caller requested."""
        self.depth -= 1
        if self.depth:
            return None
        if hasattr(output, "to_tuple"):
            # A softmax of scores that the model returns is no attention of the model.
            with torch.no_grad(), capturing_elsewhere([self.session.tracker]):
                self._record(output, model)
        # Record the softmaxes of layers whose weights the model did not return.
        calls, self.session.unconfirmed = self.session.unconfirmed or {}, None
        parts = {part for name in self.recorded for part in and_parents(name)}
        for layer in calls:
            if layer in parts or not self.recorded.isdisjoint(and_parents(layer)):
                continue
            for call in calls[layer]:
                if (name := self.session.next_call_name(layer)) is not None:
                    self.session.record_call(name, call)
        if not hasattr(output, "to_tuple"):
            return None
        self.returned.clear()
        self.inputs = {}
        if not self.requested["output_attentions"]:
            output = _without_fields(output, ATTENTIONS)
        if not self.requested.get("output_hidden_states", True):
            output = _without_fields(output, STATES)
        return output if self.requested["return_dict"] else output.to_tuple()

    def _record(self, output: Any, model: nn.Module) -> None:
        session = self.session
        self.recorded.clear()
        in_output: dict[int, tuple[str, Tensor]] = {}
        streams = 1 + getattr(model.config, "ngram", 0)
        for key, number, weights in _weights_in(output):
            address = weights.untyped_storage().data_ptr()
            in_output.setdefault(address, (key, weights))
            self.returned.setdefault(address, (f"{key}.{number}", weights))
        softmaxes, named = session.unconfirmed or {}, session.tracker.named
        counts = Counter(layer for address, (layer, _) in self.returned.items() if address in in_output)
        for address, (layer, whole) in self.returned.items():
            if layer in named and uses_interface(named[layer]):
                continue  # recorded by `transformers_attention`
            if address not in in_output or layer in session.kernel_callers:
                continue
            if session.refusals.get(layer, "").endswith(SELECTED.partition("{}")[2]):
                continue  # the rows of the returned weights are not the steps of the input
            key, returned = in_output[address]
            if len(softmaxes.get(layer, ())) == session.tracker.runs[layer] > counts[layer]:
                # LXMERT runs a layer twice and returns the weights of one call: record the softmaxes instead.
                cross: Kind | None = "cross" if key.startswith("cross") else None
                softmaxes[layer] = [dataclasses.replace(call, kind=cross or call.kind) for call in softmaxes[layer]]
                continue
            # CPM-Ant cuts its learned prompt off the weights of its first pass, but not of later passes.
            if whole.shape[:-2] == returned.shape[:-2] and whole.numel() > returned.numel():
                returned = whole
            checked = _check_weights(returned, model, session.tracker, layer)
            if checked is None or (checked.dim() > 4 and streams == 1):
                continue
            windows = layer in self.global_steps
            whole = expand_windows(checked, self.global_steps[layer], self.global_rows[layer]) if windows else checked
            for stream, weights in _split_streams(layer, whole, streams if key.startswith("cross") else 1):
                if stream != layer and hasattr(session.tracker.cache, "get_seq_length"):
                    continue  # the steps of their keys change from step to step
                self.recorded.add(layer)
                name = session.next_call_name(stream)
                if name is not None:
                    call = _describe(key, weights, _padding(self.inputs, key, weights))
                    session.record_call(name, call)


def _check_weights(returned: Tensor, model: nn.Module, tracker: ForwardTracker, layer: str) -> Tensor | None:
    """Return weights, converted from scores if the model returns scores; None for other tensors.

    Returned scores do not include an intervention, so the changed weights replace them.
    """
    if getattr(model.config, "model_type", None) in RETURN_SCORES:
        changed = last_changed_weights(tracker.named[layer]) if layer in tracker.named else None
        if changed is not None and changed.shape == returned.shape:
            return changed
        returned = returned if are_attention_weights(returned) else returned.softmax(-1)
    # In training, the rows do not sum to one because of dropout.
    in_training = model.training and not (returned < 0).any()
    return returned if are_attention_weights(returned) or not returned.any() or in_training else None


def _split_streams(layer: str, weights: Tensor, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield weights (B, H, Tq, Tk) and their name; for ProphetNet, yield the weights of each of its N prediction
    streams, from (B, N, H, Tq, Tk) or (B, H, N Tq, Tk)."""
    if weights.dim() == 4:
        for number, stream in enumerate(weights.chunk(count, dim=2)):
            yield f"{layer}.stream{number}" if number else layer, stream
    elif weights.dim() == 5:
        for number in range(weights.shape[1]):
            yield f"{layer}.stream{number + 1}", weights[:, number]


def _weights_in(output: Any) -> Iterator[tuple[str, int, Tensor]]:
    """Yield all weights in a model's output, with the names of their fields and their positions in the fields."""
    for key, value in output.items():
        if hasattr(value, "to_tuple"):
            yield from _weights_in(value)
        elif key.endswith(ATTENTIONS) and "global" not in key and value is not None:
            for number, weights in enumerate(_flatten(value)):
                yield key, number, weights


def _flatten(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequence):
        for part in value:
            yield from _flatten(part)


def _without_fields(output: Any, ending: str) -> Any:
    """Return a model's output without the fields whose names end in `ending`."""
    fields = {
        key: _without_fields(value, ending) if hasattr(value, "to_tuple") else value
        for key, value in output.items()
        if not key.endswith(ending)
    }
    return type(output)(**fields)


def _padding(inputs: dict[str, Any], key: str, weights: Tensor) -> Tensor | None:
    """Return a mask (B, Tk) of the keys of weights (B, H, Tq, Tk) that are padding; None without a padding mask."""
    if key.startswith("cross") and inputs.get("encoder_attention_mask") is not None:
        mask = inputs["encoder_attention_mask"]
    else:
        mask = inputs.get("decoder_attention_mask" if key.startswith("decoder") else "attention_mask")
    if not isinstance(mask, Tensor) or mask.shape != (weights.shape[0], weights.shape[-1]):
        return None
    return mask == 0


def _zero_even_rows(weights: Tensor, padding: Tensor) -> Tensor:
    """Return weights (B, H, Tq, Tk) with zeros in uniform rows whose keys include padding (B, Tk).

    A model returns uniform rows if all keys are masked.
    """
    on_padding = (weights * padding[:, None, None]).any(-1)
    if not on_padding.any():
        return weights
    even = (weights == 0) | ((weights - weights.amax(-1, keepdim=True)).abs() < EVEN)
    return weights.masked_fill((on_padding & even.all(-1)).all(1)[:, None, :, None], 0.0)


def _describe(key: str, weights: Tensor, padding: Tensor | None) -> AttentionCall:
    if padding is not None:
        weights = _zero_even_rows(weights, padding)
    mask = nonzero_keys(weights)
    kind: Kind | None = None
    if key.startswith(("cross", "encoder", "decoder")):
        kind = "cross" if key.startswith("cross") else "encoder" if key.startswith("encoder") else "decoder"
    return AttentionCall.from_weights(weights, mask, kind or self_attention_kind(mask, weights.shape[2]))


def expand_windows(windows: Tensor, is_global: Tensor, global_rows: Tensor | None) -> Tensor:
    """Return (B, H, Tq, Tk) from windows (B, H, T, G + W), `is_global` (B, T) and `global_rows` (B, H, G, T)."""
    batch, heads, queries, _ = windows.shape
    steps = is_global.shape[1]
    count = int(is_global.sum(1).max())
    width = windows.shape[-1] - count
    start = torch.arange(queries, device=windows.device)[:, None] - width // 2
    keys = start + torch.arange(width, device=windows.device)
    inside = (keys >= 0) & (keys < steps)
    weights = windows.new_zeros(batch, heads, queries, steps)
    index = keys.clamp(0, steps - 1).expand(batch, heads, queries, width)
    weights.scatter_add_(-1, index, windows[..., count:] * inside)
    for sample in range(batch):
        positions = is_global[sample].nonzero().squeeze(-1)
        weights[sample][:, :, positions] += windows[sample, :, :, : len(positions)]
        for number, position in enumerate(positions.tolist()):
            if global_rows is not None and position < queries:
                weights[sample][:, position] = global_rows[sample, :, number]
    return weights[..., :queries]
