"""Recording of any model: layers of Regard's, of PyTorch's, and whatever else attends inside.

    with regard.record(model) as records:
        model(inputs)

- Regard's own layers hand over what they do: see `regard.attention`.
- Calls of PyTorch's fused kernel, and its layers, are seen wherever they are made: see `kernel`.
- Attention functions of Hugging Face's models are seen where they are looked up (`interface`). Models that look
  none up are asked through what they return (`outputs`).
- Whatever else is a tensor of rows that sum to one, and passes a named place: see `places`.
"""

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from regard.attention import Records, short_name
from regard.attention.intervening import interventions_in
from regard.attention.observing import AttentionLayer, uncompiled
from regard.attention.recording import recorder_of, recording_layers
from regard.attention.records import Recorder
from regard.errors import InputError, unknown
from regard.external.attention_interface import capture_interface, uses_interface
from regard.external.capture_session import CaptureSession
from regard.external.fastpath import match_fast_path
from regard.external.forward_tracker import ForwardTracker
from regard.external.generation import follow_generation
from regard.external.generation_cache import follow_caches
from regard.external.modules import prompt_length, resolve_module
from regard.external.named_modules import capture_named_modules
from regard.external.output_attentions import capture_outputs, models_without_interface, names_in_code
from regard.external.token_labels import Read, TokenLabeler
from regard.external.torch_calls import TorchCallMode, may_call_torch_attention
from regard.external.unseen import BY_HAND, is_sequence_mixer, left_out


@contextmanager
def record(
    model: Any,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    inside: bool = False,
    at: str | None = None,
    tokenizer: Any = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[Records]:
    """Record the attention of any model: yields a mapping from layer name to `Record`.

    `model`: a module, a run, or what `regard.look` returns.
    It fills as the model runs. A pass begins the records of its layers anew, or goes on with them where it takes
    the next steps of the same sequences, as generation with a cache does, in a beam too: then each row is that of
    the hypothesis which was returned. A layer that runs several times in a pass is `name`, `name#1`, ... .
    `layers`, `heads` and `rows` (query steps) limit what is recorded, and nothing else is worked out: a few rows
    of a long input cost a few rows. `inside`: keep queries, keys, values, scores and contexts of Regard's own
    layers as well, in `Record.inside`. `at` names modules, with `*` for any part of a name, through which weights
    pass that nothing else sees: `blocks.*.attn_drop`. Labels travel with every record; with the `tokenizer` of a
    model of Hugging Face's, every layer and input has those of its own tokens.

    The output is that of the model's own code, and gradients flow as usual. Weights are in float32 or better; a
    warning names each layer whose weights, times its values, are not what it returned. Warns where the model ran
    and nothing was recorded. Only the thread that records is recorded. Raises `InputError` for a layer or place
    that the model has not, and, as it runs, for a head or row out of range.
    """
    model, at = resolve_module(model, at)
    check_layer_list(layers)
    recorder = recorder_of(heads, rows, query_labels, key_labels, inside=inside)
    recorder.interventions = partial(interventions_in, model)
    tracker = ForwardTracker(model)
    read = Read(None if tokenizer is None else TokenLabeler(tokenizer), prompt_length(tracker.modules.values()))
    recorder.tokens = None if tokenizer is None else read.of
    session = CaptureSession(recorder, tracker, layers, read)
    recorder.left_out = lambda: left_out(session, recorder.parts)
    own = regard_layers(tracker)
    with watching(model, session, at=at) as peers, recording_layers(own, recorder, layers):
        check_layers(layers, tracker, peers)
        yield Records(recorder)
    warn_if_nothing_recorded(model, session, set(recorder.parts))
    if recorder.parts:
        unseen = {name: why for name, why in recorder.left_out().items() if why.endswith(BY_HAND)}
        if unseen:
            name, why = next(iter(unseen.items()))
            more = f", and {len(unseen) - 1} more like it (records.left_out)" if len(unseen) > 1 else ""
            warnings.warn(f"not recorded: {name} ({why}){more}", stacklevel=3)


@contextmanager
def watching(model: nn.Module, session: CaptureSession, *, at: str | None = None) -> Iterator[set[str]]:
    """Let a keeper see all attention of a model but that of Regard's layers; yields layers known to attend."""
    own, modules = set(regard_layers(session.tracker)), session.tracker.modules.values()
    calls = session.intervenes or may_call_torch_attention({type(module) for module in modules})
    alone = at is None and not calls and not models_without_interface(modules)
    with ExitStack() as stack:
        stack.enter_context(uncompiled())
        some = (each for each in modules if uses_interface(each) or is_sequence_mixer(each))
        stack.enter_context(session.tracker.watching(some if alone else None))
        peers = stack.enter_context(capture_interface(model, session))
        if not session.intervenes:
            stack.enter_context(follow_generation(model, session))
            stack.enter_context(capture_outputs(model, session))
        # After what is returned has been looked at, a pass is over.
        stack.enter_context(follow_caches(model, session))
        if at is not None:
            stack.enter_context(capture_named_modules(at, session))
        if calls:
            stack.enter_context(match_fast_path(session.tracker))
            stack.enter_context(TorchCallMode(session, own))
        yield own | peers


@contextmanager
def recorded_path(model: nn.Module) -> Iterator[None]:
    """Run a model in the block on the path on which it is recorded, where layers call their parts' hooks."""
    with watching(model, CaptureSession(Recorder(), ForwardTracker(model), (), Read(None))):
        yield


def regard_layers(tracker: ForwardTracker) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model that are Regard's, by their dotted names."""
    return {name: each for name, each in tracker.modules.items() if isinstance(each, AttentionLayer)}


def check_layer_list(layers: Collection[str] | None) -> None:
    """Raise `InputError` for one name that is given instead of several."""
    if isinstance(layers, str):
        raise InputError(f"layers is the text {layers!r}: give a list of names, [{layers!r}]")


def check_layers(layers: Collection[str] | None, tracker: ForwardTracker, likely: set[str]) -> None:
    """Refuse names that are no modules', with near ones among those that attend."""
    known = {each for name in tracker.names.values() for each in (name, short_name(name))}
    attending = likely | {name for name in known if "att" in name.lower()}
    for name in layers or ():
        if name.split("#")[0] not in known:
            raise unknown("layer", name, sorted(attending or known))


def _warn_of_unseen(session: CaptureSession, recorded: Collection[str]) -> bool:
    """Warn of modules beside the recorded ones that attend unseen; say whether any does."""
    warned = False
    for name, module in session.tracker.modules.items():
        how = _unseen(module)
        if how and session.wants(name) and not any(each.startswith(name) for each in recorded):
            warnings.warn(f"{name or type(module).__name__} attends by {how}", stacklevel=5)
            warned = True
    return warned


def _unseen(module: Any) -> str:
    """Return how a module attends which cannot be seen, and what to do; "" where it does not."""
    if isinstance(module, torch.jit.ScriptModule):
        if any(word in str(module.inlined_graph) for word in ("softmax", "scaled_dot_product_attention")):
            return "compiled TorchScript, which is not seen: record the module that it was made of"
        return ""
    kind: Any = type(module)
    if kind.__module__.startswith(("torch.", "transformers.", "regard.")):
        return ""
    if "flex_attention" in names_in_code(kind):
        return (
            "flex_attention, which is not seen: name where its weights pass, with at=, or take"
            " scaled_dot_product_attention meanwhile"
        )
    return ""


def warn_if_nothing_recorded(model: nn.Module, session: CaptureSession, recorded: Collection[str]) -> None:
    """Warn where a model ran, and nothing of what was asked for was recorded, or not all that attends."""
    if session.layers is not None and not session.layers:
        return
    if not session.tracker.ran or _warn_of_unseen(session, recorded) or recorded:
        return
    name = type(model).__name__
    if session.layers is not None:
        message = f"{', '.join(session.layers)} did not attend: record without layers to see which do"
    else:
        message = (
            "nothing was recorded: it calls no attention that is known; name the module through which its weights"
            " pass, as in record(model, at='blocks.*.attn_drop')"
        )
    warnings.warn(f"{name} ran, and {message}", stacklevel=4)
