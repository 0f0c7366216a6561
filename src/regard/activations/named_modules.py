"""Capture weights in the inputs and outputs of modules that the user names, such as the dropout after a softmax.

Inputs or outputs whose rows sum to one over the keys are recorded. Inputs come first, because of dropout.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.activations.attention_axes import FOLDED, UNKNOWN, Axes, active_probe
from regard.activations.capture_session import CaptureSession, are_attention_weights, attention_call, nonzero_keys
from regard.activations.forward_tracker import remove_hooks
from regard.attention.names import short_name
from regard.attention.records import is_transformed
from regard.errors import InputError, unknown_choice


def applies(session: CaptureSession) -> bool:
    return session.modules is not None


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture weights that pass through the modules with matching names; raises `InputError` if no module matches."""
    pattern, modules = session.modules or "", session.tracker.named
    short = short_name(pattern)
    matching = {name for name in modules if fnmatchcase(name, pattern) or fnmatchcase(short_name(name), short)}
    if not matching:
        raise unknown_choice("module", pattern, list(modules))
    session.named_modules = matching
    capture_weights = partial(_capture_weights, session)
    with session.axes.observe():
        hooks = [session.tracker.hook_after(module, capture_weights) for module in {modules[name] for name in matching}]
        with remove_hooks(hooks):
            yield set()


def _capture_weights(session: CaptureSession, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Record the first tensor of weights in a module's inputs or outputs, or return the output with changed weights."""
    probe = active_probe()
    layer = session.tracker.name_of(module) or ""
    if layer not in session.named_modules:  # another part of the model shares the module
        return None
    outputs = list(output) if isinstance(output, tuple | list) else [output]
    inputs = [] if session.intervenes else [*args, *kwargs.values()]
    name = layer if probe is not None else session.next_call_name(layer)
    if name is None:
        return None
    weights = next(filter(are_attention_weights, [*inputs, *outputs]), None)
    if weights is None:
        if probe is None and not session.intervenes:
            warnings.warn(
                f"module {layer!r} neither receives nor returns rows that sum to one: name the softmax, or "
                "the module right after it",
                stacklevel=4,
            )
        return None
    shapes = [getattr(value, "shape", None) for value in outputs]
    place = shapes.index(weights.shape) if weights.shape in shapes else None
    if probe is not None:
        changed = outputs[place or 0] if place is None else probe.visit(layer, outputs[place])
    else:
        axes, flat = _find_axes(session, module, layer, weights), weights.dim() == 2
        if axes is None:
            return None
        by_head = axes.unfold(weights)  # each call of a loop over heads has its own record
        if not session.intervenes:
            session.record_call(name, attention_call(by_head.detach(), flat=flat))
            return None
        changed = axes.fold(session.change_weights(by_head, nonzero_keys(by_head)), weights.shape)
    outputs[place or 0] = changed
    return type(output)(outputs) if isinstance(output, tuple | list) else outputs[0]


def _find_axes(session: CaptureSession, module: nn.Module, layer: str, weights: Tensor) -> Axes | None:
    """Return the axes of weights; None, with a remark, if they are unknown."""
    session.axes.count(layer)
    if weights.dim() == 2:
        return Axes(("q", "k"))
    convention = weights if is_transformed(weights) else None  # a module cannot be probed inside vmap
    axes = session.axes.find(weights.shape, weights.dim() - 1, layer, convention=convention)
    if isinstance(axes, Axes):
        return axes
    reason = (axes or UNKNOWN).format(tuple(weights.shape))
    if session.intervenes:
        raise InputError(f"module {layer!r}: {reason}: name a module where they are (B, H, Tq, Tk)")
    if weights.dim() > 3 or axes not in (FOLDED, UNKNOWN):
        session.refusals[layer] = f"{type(module).__name__}: {reason}"
        return None
    session.warn_once(layer, f"module {layer!r}: {reason}: recorded as {len(weights)} samples of one head")
    return Axes(("s", "q", "k"))
