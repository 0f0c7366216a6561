"""Models of Hugging Face's that work attention out by hand: they return their weights, if they are asked to.

They are asked in the block, and their callers get what they asked for. Which layer a tensor is of, is seen from
the module that returned it first. Such a model does not report its mask: a key that no head of a query gives any
weight counts as masked. A row whose keys are all masked has equal weights on them, since all its scores are the
same; where these keys are padding, the row is recorded with weights of zero and a mask that allows no key.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.layer_record import Kind
from regard.external.attention_interface import is_transformers_model, uses_interface
from regard.external.bands import LongformerWindows
from regard.external.capture_session import AttentionCall, CaptureSession, are_attention_weights
from regard.external.forward_tracker import ForwardTracker
from regard.external.torch_attention import self_attention_kind
from regard.external.torch_calls import last_changed_weights

KEY = "attentions"
"""In what a model returns, each name of weights ends so."""

EVEN = 1e-6
"""How far apart the weights of a row are at most whose scores were all the same."""
NEEDS_STATES = ("maskformer-swin",)
"""The models that report weights only together with hidden states."""
SCORES = ("prophetnet", "squeezebert")
"""The models that return scores instead, before their softmax."""


@contextmanager
def capture_outputs(model: nn.Module, session: CaptureSession) -> Iterator[None]:
    """Record in the block what models of Hugging Face's work out by hand."""
    asker = OutputAttentionsHook(session)
    hooks: list[Any] = []
    for peer in models_without_interface(session.tracker.modules.values()):
        hooks.append(peer.register_forward_pre_hook(asker.begin, with_kwargs=True))
        hooks.append(peer.register_forward_hook(asker.end, always_call=True))
    if hooks:
        hooks += asker.bands.hooks(model)
        session.tracker.listeners.append(asker.note)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def models_without_interface(modules: Iterable[nn.Module]) -> list[Any]:
    """Return the models of Hugging Face's among some modules that work attention out by hand."""
    return [peer for peer in filter(is_transformers_model, modules) if _works_by_hand(peer)]


def _works_by_hand(peer: nn.Module) -> bool:
    modules = list(peer.modules())
    if getattr(peer.config, "_attn_implementation", None) == "sdpa" and any(map(_calls_kernel, modules)):
        return False  # and the call is seen
    return not any(map(uses_interface, modules)) or any(map(_has_softmax, modules))


def _has_softmax(module: nn.Module) -> bool:
    """Say whether a layer that does not ask the interface takes softmaxes, and calls itself attention."""
    if uses_interface(module) or "att" not in type(module).__name__.lower():
        return False
    kind: Any = type(module)
    return any("softmax" in name.lower() for name in names_in_code(kind))


def _calls_kernel(module: nn.Module) -> bool:
    kind: Any = type(module)
    return "scaled_dot_product_attention" in names_in_code(kind)


@cache
def names_in_code(kind: Any) -> set[str]:
    """Return the names that the code of a class uses."""
    functions = (inspect.unwrap(each) for each in vars(kind).values() if inspect.isfunction(each))
    return {name for each in functions for name in each.__code__.co_names}


class OutputAttentionsHook:
    """Asks the outermost model for its weights. A copy of it asks nobody."""

    def __init__(self, session: CaptureSession | None = None) -> None:
        self.session, self.depth = session, 0
        self.bands = LongformerWindows()
        self.asked: dict[str, Any] = {}
        """What the caller asked for."""
        self.given: dict[str, Any] = {}
        """What the caller gave, by the names of the model's parameters."""
        self.returned: dict[int, tuple[str, Tensor]] = {}
        """By the place of a tensor in memory: the innermost module that returned it, and the tensor."""

        self.likely: list[tuple[str, Tensor]] = []
        """Of layers that take softmaxes: what they returned that can be weights, with the layer."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return OutputAttentionsHook, ()

    def begin(self, peer: nn.Module, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Ask for weights, and for all that is returned by name."""
        if self.session is None or not self.session.tracker.here:
            return None
        self.depth += 1
        if self.depth > 1:
            return None
        self.returned.clear()
        self.likely.clear()
        names = inspect.signature(peer.forward).parameters
        options = any(each.kind is each.VAR_KEYWORD for each in names.values())
        config: Any = peer.config
        self.given = dict(zip(names, args, strict=False)) | given
        self.asked = {
            "output_attentions": _or(given.get("output_attentions"), getattr(config, "output_attentions", False)),
            "return_dict": _or(given.get("return_dict"), getattr(config, "return_dict", True)),
        }
        if getattr(config, "model_type", None) in NEEDS_STATES:
            states = _or(given.get("output_hidden_states"), getattr(config, "output_hidden_states", False))
            self.asked["output_hidden_states"] = states
        return args, given | {name: True for name in self.asked if options or name in names}

    def note(self, name: str, module: nn.Module, output: Any) -> None:
        """Note what a module returns; `name`: its own."""
        if not self.depth:
            return
        given = (
            output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
        )
        for each in given:
            if isinstance(each, Tensor) and each.dim() > 2 and each.is_floating_point():
                if _has_softmax(module) and are_attention_weights(each):
                    self.likely.append((name, each))
                place = each.untyped_storage().data_ptr()
                inner = self.returned.get(place)
                if inner is None or not inner[0].startswith(f"{name}." if name else ""):
                    self.returned.pop(place, None)
                    self.returned[place] = name, each

    def end(self, peer: nn.Module, _: Any, output: Any) -> Any:
        """Record the weights that were returned, and return what the caller asked for."""
        if self.session is None or not self.session.tracker.here:
            return None
        self.depth -= 1
        if self.depth or not hasattr(output, "to_tuple"):
            return None
        with torch.no_grad():
            self._record(self.session, output, peer)
        self.returned.clear()
        self.given = {}
        if not self.asked["output_attentions"]:
            output = _without(output, KEY)
        if not self.asked.get("output_hidden_states", True):
            output = _without(output, "hidden_states")
        return output if self.asked["return_dict"] else output.to_tuple()

    def _record(self, session: CaptureSession, output: Any, peer: nn.Module) -> None:
        found: dict[int, tuple[str, Tensor]] = {}
        streams = 1 + getattr(peer.config, "ngram", 0)
        for key, number, weights in _weights(output):
            found.setdefault(weights.untyped_storage().data_ptr(), (key, weights))
            self.returned.setdefault(weights.untyped_storage().data_ptr(), (f"{key}.{number}", weights))
        if not found:  # it was asked in vain
            found = {each.untyped_storage().data_ptr(): (KEY, each) for _, each in self.likely}
        for place, (layer, _) in self.returned.items():
            own = session.tracker.modules.get(layer)
            if own is not None and uses_interface(own):
                continue  # it has been recorded there
            if place in found and layer not in session.elsewhere:
                key, returned = found[place]
                whole = _weights_of(returned, peer, session.tracker, layer)
                if whole is None or (whole.dim() > 4 and streams == 1):
                    continue
                weights = self.bands.unfolded(layer, whole)
                for stream, each in _streams(layer, weights, streams if key.startswith("cross") else 1):
                    if stream != layer and hasattr(session.tracker.cache, "get_seq_length"):
                        continue  # the place of their keys changes from step to step
                    name = session.next(stream)
                    if name is not None:
                        session.keep(name, _call(key, each, _padding(self.given, key, each)))


def _weights_of(returned: Tensor, peer: nn.Module, tracker: ForwardTracker, layer: str) -> Tensor | None:
    """Return weights, also of a model that returns scores under that name, which know nothing of an intervention;
    None where they are something else."""
    if getattr(peer.config, "model_type", None) in SCORES:
        changed = last_changed_weights(tracker.module(layer)) if layer in tracker.names.values() else None
        if changed is not None and changed.shape == returned.shape:
            return changed
        returned = returned if are_attention_weights(returned) else returned.softmax(-1)
    sound = are_attention_weights(returned) or not returned.any() or (peer.training and not (returned < 0).any())
    return returned if sound else None


def _streams(layer: str, weights: Tensor, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield weights (B, H, Tq, Tk) with their name: one, or one for each stream that predicts, of ProphetNet's
    (B, N, H, Tq, Tk) or (B, H, N Tq, Tk)."""
    if weights.dim() == 4:
        for number, each in enumerate(weights.chunk(count, dim=2)):
            yield f"{layer}.stream{number}" if number else layer, each
    elif weights.dim() == 5:
        for number in range(weights.shape[1]):
            yield f"{layer}.stream{number + 1}", weights[:, number]


def _or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


def _weights(output: Any) -> Iterator[tuple[str, int, Tensor]]:
    """Yield all weights in what a model returned, with the names and numbers that they have there."""
    for key, value in output.items():
        if hasattr(value, "to_tuple"):
            yield from _weights(value)
        elif key.endswith(KEY) and "global" not in key and value is not None:
            for number, each in enumerate(_flat(value)):
                yield key, number, each


def _flat(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequence):
        for each in value:
            yield from _flat(each)


def _without(output: Any, ending: str) -> Any:
    """Return the same without the fields whose names end so."""
    return type(output)(
        **{
            key: _without(value, ending) if hasattr(value, "to_tuple") else value
            for key, value in output.items()
            if not key.endswith(ending)
        }
    )


def _padding(given: dict[str, Any], key: str, weights: Tensor) -> Tensor | None:
    """Return which keys of weights (B, H, Tq, Tk) are padding, (B, Tk) bool; None where nobody said."""
    if key.startswith("cross") and given.get("encoder_attention_mask") is not None:
        mask = given["encoder_attention_mask"]
    else:
        mask = given.get("decoder_attention_mask" if key.startswith("decoder") else "attention_mask")
    if not isinstance(mask, Tensor) or mask.shape != (weights.shape[0], weights.shape[-1]):
        return None
    return mask == 0


def _without_blind(weights: Tensor, padding: Tensor) -> Tensor:
    """Return weights (B, H, Tq, Tk) with zeros in rows that spread evenly over keys of which some are padding.

    A model does so where it has masked all keys. `padding` (B, Tk)."""
    on_padding = (weights * padding[:, None, None]).any(-1)
    if not on_padding.any():
        return weights
    even = (weights == 0) | ((weights - weights.amax(-1, keepdim=True)).abs() < EVEN)
    return weights.masked_fill((on_padding & even.all(-1)).all(1)[:, None, :, None], 0.0)


def _call(key: str, weights: Tensor, padding: Tensor | None) -> AttentionCall:
    if padding is not None:
        weights = _without_blind(weights, padding)
    seen = (weights != 0).any(1, keepdim=True)
    mask = None if seen.all() else seen
    kind: Kind | None = None
    if key.startswith(("cross", "encoder", "decoder")):
        kind = "cross" if key.startswith("cross") else "encoder" if key.startswith("encoder") else "decoder"
    return AttentionCall(
        queries=weights.shape[2],
        rows=lambda chosen: (weights[:, :, chosen], mask if mask is None else mask[:, :, chosen]),
        kind=kind or self_attention_kind(mask, weights.shape[2]),
    )
