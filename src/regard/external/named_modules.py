"""Capture weights in the inputs and outputs of modules that the user names, such as the dropout after a softmax.

Inputs or outputs whose rows sum to one over the keys are recorded. Inputs take precedence, because dropout
changes the outputs.
"""

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from regard.attention.records import short_name
from regard.errors import InputError, unknown_choice
from regard.external.attention_call import AttentionCall
from regard.external.capture_session import CaptureSession, are_attention_weights, nonzero_keys
from regard.external.folded_heads import Foldings, is_probing
from regard.external.hooks import remove_hooks
from regard.external.torch_attention import self_attention_kind


def applies(session: CaptureSession) -> bool:
    """Return whether the user passed a name pattern of modules."""
    return session.modules is not None


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture weights that pass through the modules with matching names; raises `InputError` if no module
    matches."""
    pattern, modules = session.modules or "", session.tracker.modules
    matching = {name for name in modules if fnmatchcase(name, pattern) or fnmatchcase(short_name(name), pattern)}
    if not matching:
        raise unknown_choice("module", pattern, list(modules))
    session.named_modules = matching
    hook = WeightsHook(session)
    hooks = [session.tracker.hook_after(modules[name], hook.capture) for name in modules if name in matching]
    with remove_hooks(hooks), hook.foldings.observe(matching):
        yield set()


class WeightsHook:
    """Hook that records or changes the weights in the inputs or outputs of a module."""

    def __init__(self, session: CaptureSession) -> None:
        self.session, self.foldings = session, Foldings(session.tracker)

    def capture(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Record the first tensor of weights, or return the output with changed weights."""
        session = self.session
        layer = session.tracker.names.get(id(module), "")
        outputs = output if isinstance(output, tuple | list) else [output]
        if is_probing():
            for weights in filter(are_attention_weights, [*args, *kwargs.values(), *outputs]):
                self.foldings.note_probe(layer, weights)
            return None
        name = session.next_call_name(layer)
        if name is None:
            return None
        if session.intervenes:
            changed = [
                self._change(session, layer, value) if are_attention_weights(value) else value
                for value in outputs
            ]
            return type(output)(changed) if isinstance(output, tuple | list) else changed[0]
        weights = next(filter(are_attention_weights, [*args, *kwargs.values(), *outputs]), None)
        if weights is None:
            warnings.warn(
                f"module {layer!r} neither receives nor returns rows that sum to one: name the softmax, or the "
                f"module right after it",
                stacklevel=4,
            )
        else:
            call = _describe(self._split_heads(session, layer, weights.detach()))
            session.record_call(name, dataclasses.replace(call, flat=weights.dim() == 2))
        return None

    def _split_heads(self, session: CaptureSession, layer: str, weights: Tensor) -> Tensor:
        """Return weights as (B, H, Tq, Tk); warn if heads and samples cannot be distinguished."""
        folding = self.foldings.find(layer, weights) if weights.dim() == 3 else None
        if folding is not None:
            return folding.unfold(weights)
        if weights.dim() == 3 and layer not in session.mismatched:
            session.mismatched.add(layer)
            warnings.warn(
                f"{_unclear(layer, weights)}: recorded as {len(weights)} samples of one head", stacklevel=5
            )
        shape = weights.shape[-3:] if weights.dim() > 3 else (1, *weights.shape[-2:])
        return weights.reshape(-1, *shape)

    def _change(self, session: CaptureSession, layer: str, weights: Tensor) -> Tensor:
        folding = self.foldings.find(layer, weights) if weights.dim() == 3 else None
        if weights.dim() == 3 and folding is None:
            raise InputError(f"{_unclear(layer, weights)}: name a module where they are (B, H, Tq, Tk)")
        by_head = self._split_heads(session, layer, weights)
        changed = session.change_weights(by_head, nonzero_keys(by_head))
        return changed.reshape(weights.shape) if folding is None else folding.fold(changed)


def _unclear(layer: str, weights: Tensor) -> str:
    return f"module {layer!r}: heads and samples cannot be distinguished in weights {tuple(weights.shape)}"


def _describe(weights: Tensor) -> AttentionCall:
    mask = nonzero_keys(weights)
    square = weights.shape[2] == weights.shape[3]
    return AttentionCall.from_weights(
        weights, mask, self_attention_kind(mask, weights.shape[2]) if square else None
    )
