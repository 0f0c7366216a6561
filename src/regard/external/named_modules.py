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
from regard.external.attention_axes import FOLDED, UNKNOWN, Axes, active_probe
from regard.external.attention_call import AttentionCall
from regard.external.capture_session import CaptureSession, are_attention_weights, nonzero_keys
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
    with session.axes.observe():
        hooks = [session.tracker.hook_after(modules[name], hook.capture) for name in modules if name in matching]
        with remove_hooks(hooks):
            yield set()


class WeightsHook:
    """Hook that records or changes the weights in the inputs or outputs of a module."""

    def __init__(self, session: CaptureSession) -> None:
        self.session = session

    def capture(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Record the first tensor of weights, or return the output with changed weights."""
        session = self.session
        layer = session.tracker.names.get(id(module), "")
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        places = range(len(outputs))
        if session.intervenes:
            place = next((place for place in places if are_attention_weights(outputs[place])), None)
            weights = None if place is None else outputs[place]
        else:
            weights = next(filter(are_attention_weights, [*args, *kwargs.values(), *outputs]), None)
            shapes = [getattr(value, "shape", None) for value in outputs]
            place = shapes.index(weights.shape) if weights is not None and weights.shape in shapes else None
        if weights is not None and (probe := active_probe()) is not None:
            if place is not None:
                outputs[place] = probe.visit(layer, outputs[place])
            return type(output)(outputs) if isinstance(output, tuple | list) else outputs[0]
        name = session.next_call_name(layer)
        if name is None:
            return None
        if weights is None:
            warnings.warn(
                f"module {layer!r} neither receives nor returns rows that sum to one: name the softmax, or the "
                f"module right after it",
                stacklevel=4,
            )
            return None
        session.axes.count(layer)
        axes: Axes | str | None = Axes(("q", "k"))
        if weights.dim() > 2:
            axes = session.axes.find(weights.shape, weights.dim() - 1, layer)
        if not isinstance(axes, Axes):
            reason = (axes or UNKNOWN).format(tuple(weights.shape))
            if session.intervenes:
                raise InputError(f"module {layer!r}: {reason}: name a module where they are (B, H, Tq, Tk)")
            if weights.dim() > 3 or axes not in (FOLDED, UNKNOWN):
                session.refusals[layer] = f"{type(module).__name__}: {reason}"
                return None
            if layer not in session.mismatched:
                session.mismatched.add(layer)
                warnings.warn(
                    f"module {layer!r}: {reason}: recorded as {len(weights)} samples of one head", stacklevel=4
                )
            axes = Axes(("s", "q", "k"))
        by_head = axes.unfold(weights)  # each call of a loop over heads has its own record
        if session.intervenes and place is not None:
            changed = session.change_weights(by_head, nonzero_keys(by_head))
            outputs[place] = axes.fold(changed, weights.shape)
            return type(output)(outputs) if isinstance(output, tuple | list) else outputs[0]
        call = _describe(by_head.detach())
        session.record_call(name, dataclasses.replace(call, flat=weights.dim() == 2))
        return None


def _describe(weights: Tensor) -> AttentionCall:
    mask = nonzero_keys(weights)
    square = weights.shape[2] == weights.shape[3]
    return AttentionCall.from_weights(
        weights, mask, self_attention_kind(mask, weights.shape[2]) if square else None
    )
