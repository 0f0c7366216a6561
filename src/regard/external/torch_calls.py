"""Intercept the calls of PyTorch's attention functions and softmaxes in all modules.

A `TorchFunctionMode` also intercepts functions that a module imported by name, which replacing `F.softmax`
would miss.

- Calls of SDPA and of `nn.MultiheadAttention`'s function are recorded under the name of the calling module (see
  `torch_attention`).
- The result of a softmax in a layer that computes attention itself can be changed. Such layers are recorded by
  `output_attentions` or `named_modules`.
- Without gradients, PyTorch's encoder layers take a fast path: a single call that returns no weights. A
  recorded or intervened pass takes the slow path instead. The two paths agree within rounding, with two
  exceptions that `match_fast_path` corrects: `nn.TransformerEncoder` drops padded steps and returns zeros for
  them, and a row that may attend to no key is NaN.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from regard.attention.hooks import AttentionLayer
from regard.errors import InputError
from regard.external.capture_session import CaptureSession, InterventionSession, nonzero_keys
from regard.external.folded_heads import Folding, Foldings, find_heads, is_probing
from regard.external.forward_tracker import ForwardTracker, capturing_elsewhere
from regard.external.hooks import ThreadList
from regard.external.torch_attention import CAPTURED, combine_masks, mask_from_bias

LIBRARIES = ("torch.", "transformers.", "regard.")
"""Prefixes of the names of modules that are not user code."""
SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)
WINDOW_ATTRIBUTE = "one_sided_attn_window_size"
"""Attribute of Longformer's layers, whose weights have the head dimension after the steps (see
`output_attentions`)."""


def applies(session: CaptureSession) -> bool:
    """Return whether the model may call PyTorch's attention functions, judged by the code of its classes.

    Intercepting every PyTorch call costs time. Regard's own models do not need interception, nor do transformers
    models whose source contains none of the function names and uses none of PyTorch's layers. Interventions
    always need interception, because they change the softmax of layers that compute attention in their own code.
    """
    return session.intervenes or any(map(_may_call, set(map(type, session.tracker.modules.values()))))


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Capture PyTorch's attention functions inside the block, and change the softmaxes of the user's layers."""
    mode = TorchCallMode(session)
    with ExitStack() as stack:
        stack.enter_context(match_fast_path(session.tracker))
        if session.intervenes:  # a hook on a PyTorch layer would keep it from its fast path
            stack.enter_context(mode.foldings.observe(mode.softmax_modules))
        stack.enter_context(mode)
        yield set()


@cache
def _may_call(cls: Any) -> bool:
    if cls.__module__.startswith("torch.nn.modules.") and cls is not nn.MultiheadAttention:
        return "transformer" in cls.__module__
    if cls.__module__.startswith("regard."):
        return False
    if not cls.__module__.startswith("transformers."):
        return True
    source = inspect.getsource(sys.modules[cls.__module__])
    return any(function.__name__ in source for function in CAPTURED) or "nn.MultiheadAttention" in source


class TorchCallMode(TorchFunctionMode):
    """Intercepts every PyTorch call inside the block.

    If several modes are active, the first mode that intercepts a call handles the call for all modes.
    """

    def __init__(self, session: CaptureSession) -> None:
        super().__init__()
        self.session, modules = session, session.tracker.modules
        self.own = {name for name, module in modules.items() if isinstance(module, AttentionLayer)}
        """Regard's own layers, which other hooks record."""
        self.foldings = Foldings(session.tracker)
        """The layout of heads and samples in weights (N, Tq, Tk) of changed layers."""
        self.softmax_modules = {
            name
            for name, module in modules.items()
            if self._changes(name) and not type(module).__module__.startswith(LIBRARIES)
        }
        """Modules of user code whose softmax results are changed."""
        self.changed: dict[int, Tensor] = {}
        """The most recently changed weights, by id of the layer that computes its own softmax."""

    def __enter__(self) -> "TorchCallMode":
        _modes.active.append(self)
        mode: Any = super()
        mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        mode: Any = super()
        mode.__exit__(*exception)
        _modes.active.remove(self)

    @property
    def captures(self) -> bool:
        """Whether a call of the running module is captured."""
        tracker = self.session.tracker
        return bool(tracker.running) and not tracker.captured_elsewhere and tracker.running[-1] not in self.own

    def _changes(self, layer: str) -> bool:
        """Return whether the session changes the softmax of a layer."""
        session = self.session
        is_layer = isinstance(session, InterventionSession) and session.intervenes_on(layer)
        return is_layer and layer not in session.named_modules

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recording_function = CAPTURED.get(function)
        if recording_function is None and function not in SOFTMAXES:
            return function(*args, **kwargs)
        if recording_function is not None and is_probing():
            return function(*args, **kwargs)
        modes = [mode for mode in _modes.active if mode.captures]
        with capturing_elsewhere(mode.session.tracker for mode in modes):
            if recording_function is None:
                weights = function(*args, **kwargs)
                dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
                if dim in (-1, weights.dim() - 1) and weights.dim() > 2:
                    for mode in modes:
                        weights = mode.change_softmax(weights)
                return weights
            requests = []
            for mode in modes:
                caller = mode.session.tracker.running[-1]
                mode.session.kernel_callers.add(caller)
                name = mode.session.next_call_name(caller)
                if name is not None:
                    requests.append((mode.session, name))
            if requests:
                return recording_function(requests, *args, **kwargs)
            return function(*args, **kwargs)

    def change_softmax(self, weights: Tensor) -> Tensor:
        """Apply the intervention to the softmax of a layer that computes attention in its own code."""
        # The softmax may be a module inside the layer: check the two innermost running modules.
        running = self.session.tracker.running[:-3:-1]
        layer = next(filter(self._changes, running), None)
        if layer is None:
            return weights
        if is_probing():
            self.foldings.note_probe(layer, weights)
        elif self.session.next_call_name(layer) is not None:
            module = self.session.tracker.module(layer)
            weights = _change_softmax(self, layer, module, weights)
            self.changed[id(module)] = weights.detach()
        return weights


_modes = ThreadList[TorchCallMode]()
"""The modes that are active in this thread."""


def last_changed_weights(layer: nn.Module) -> Tensor | None:
    """Return the changed weights of a layer that computes its own softmax; None without an intervention."""
    changed = [mode.changed[id(layer)] for mode in _modes.active if id(layer) in mode.changed]
    return changed[-1] if changed else None


def _change_softmax(mode: TorchCallMode, layer: str, module: nn.Module, weights: Tensor) -> Tensor:
    """Change weights in a layer's own layout: (B, H, Tq, Tk), (N, Tq, Tk), or with heads after the steps.

    In (N, Tq, Tk), heads are folded into the batch. Raises `InputError` if heads are selected and cannot be
    distinguished from samples in this layout.
    """

    session = mode.session
    assert isinstance(session, InterventionSession)

    def change(by_head: Tensor) -> Tensor:
        return session.change_weights(by_head, nonzero_keys(by_head))

    if weights.dim() == 3:
        folding, heads = mode.foldings.find(layer, weights), find_heads(module)
        # In layers from transformers, the heads of a sample are adjacent.
        if folding is None and heads and type(module).__module__.startswith("transformers."):
            folding = Folding(heads) if len(weights) % heads == 0 else None
        if folding is None and session.change.heads is not None:
            raise InputError(
                f"{layer}: heads and samples cannot be distinguished in weights {tuple(weights.shape)}: name a "
                "module where they are (B, H, Tq, Tk) with modules=, or leave out heads"
            )
        folding = folding or Folding(1)
        return folding.fold(change(folding.unfold(weights)))
    if hasattr(module, WINDOW_ATTRIBUTE):
        if session.change.key is not None:
            raise InputError(
                f"{layer} attends in windows, where no single weight can be set: change whole heads instead"
            )
        return change(weights.transpose(1, 2)).transpose(1, 2)
    if weights.dim() > 4:
        return change(weights.reshape(-1, *weights.shape[-3:])).reshape(weights.shape)
    return change(weights)


FAST_PATH_LAYERS = {
    nn.MultiheadAttention.forward: ("query", "key", "key_padding_mask", "attn_mask"),
    nn.TransformerEncoderLayer.forward: ("src", "src", "src_key_padding_mask", "src_mask"),
}
"""By the `forward` of a layer: the names of its queries, its keys and its masks."""


@contextmanager
def match_fast_path(tracker: ForwardTracker) -> Iterator[None]:
    """Make PyTorch's layers return the same results on the slow path as on their fast path."""
    functions = {*FAST_PATH_LAYERS, nn.TransformerEncoder.forward}
    if not any(_forward_function(module) in functions for module in tracker.modules.values()):
        yield
        return
    hook = register_module_forward_hook(_FastPathOutput(tracker).replace, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
        # PyTorch 2.13 does not remove this entry, and would later act as if global hooks were registered.
        getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {}).pop(hook.id, None)


def _forward_function(module: nn.Module) -> Any:
    """Return the `forward` of a module's class; None for compiled code."""
    return inspect.getattr_static(type(module), "forward", None)


class _FastPathOutput:
    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker, self.busy = tracker, False

    def replace(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Return the output of the module's fast path; None if it is the same."""
        function = _forward_function(module)
        if self.busy or module.training or not self.tracker.active or id(module) not in self.tracker.names:
            return None
        if function is not nn.TransformerEncoder.forward and function not in FAST_PATH_LAYERS:
            return None
        inputs = inspect.signature(function).bind(module, *args, **kwargs).arguments
        self.busy = True
        try:
            with capturing_elsewhere([self.tracker]):
                if function is nn.TransformerEncoder.forward:
                    return without_modes(lambda: _zero_padded_steps(module, inputs, output))
                return without_modes(lambda: _restore_masked_rows(module, args, kwargs, inputs, output))
        finally:
            self.busy = False


def without_modes(function: Callable[[], Any]) -> Any:
    """Call a function without a `TorchFunctionMode`: PyTorch's layers take their fast path only without a mode.

    `handle_torch_function` removes the innermost mode while that mode calls this function again.
    """
    if has_torch_function((None,)):
        return handle_torch_function(without_modes, (), function)
    return function()


def _zero_padded_steps(encoder: Any, inputs: dict[str, Any], output: Tensor) -> Tensor | None:
    """Return the output (B, T, D) of an encoder with zeros in the steps that its fast path drops.

    A copy of the encoder without layers finds the dropped steps: the copy returns its input with zeros in these
    steps.
    """
    if inputs.get("src_key_padding_mask") is None:
        return None
    ones = torch.ones_like(inputs["src"]).requires_grad_(inputs["src"].requires_grad)
    probe = object.__new__(nn.TransformerEncoder)
    parts = {name: None for name in encoder._modules if name == "norm"}
    probe.__dict__ = vars(encoder) | {"_modules": parts, "layers": _NoLayers(encoder.layers)}
    dropped = nn.TransformerEncoder.forward(**inputs | {"self": probe, "src": ones}) == 0
    if not bool(dropped.any()):
        return None
    padded = torch.zeros_like(output) if encoder.norm is None else encoder.norm(torch.zeros_like(output))
    return torch.where(dropped, padded, output)


class _NoLayers(list[nn.Module]):
    """A list of encoder layers whose first layer can be inspected, but which runs no layer."""

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(())


def _restore_masked_rows(module: Any, args: Any, kwargs: Any, inputs: dict[str, Any], output: Any) -> Any:
    """Return the output (B, T, D) of a layer, with the values that fully masked rows have without recording."""
    # Run the layer again only if a row is fully masked.
    queries, keys, padding, mask = (inputs.get(name) for name in FAST_PATH_LAYERS[_forward_function(module)])
    attention = getattr(module, "self_attn", module)
    if queries is None or keys is None or queries.dim() != 3 or not attention.batch_first:
        return None
    shape = (len(queries), attention.num_heads, queries.shape[1], keys.shape[1])
    combined = combine_masks(padding, mask, shape)
    if combined is None:
        return None
    attends = mask_from_bias(combined).any(-1).all(1)
    if bool(attends.all()):
        return None
    plain, rows = module.forward(*args, **kwargs), attends.expand(len(queries), queries.shape[1])[..., None]
    if isinstance(output, tuple):
        return torch.where(rows, output[0], plain[0]), *output[1:]
    return torch.where(rows, output, plain)
