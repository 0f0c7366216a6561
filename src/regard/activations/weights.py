"""Record and change the attention weights of any model. `interface` adds the other activations.

    with regard.record(model) as records:
        model(inputs)

Several mechanisms capture weights, and all of them use one `CaptureSession`.
If two mechanisms could capture the same call, the mechanism with the lower priority number captures it.

    priority  mechanism               which models                      why
    1         Regard's own hooks      Regard's attention layers         they hand over exact weights
    2         transformers_attention  transformers models that look up  the model's own eager function computes
                                      their attention function          weights with its caps, sinks and biases
    3         torch_calls             any module that calls SDPA,       computed beside the fused kernel, or the
                                      nn.MultiheadAttention or softmax  result of the softmax; `attention_axes`
                                                                        finds heads, samples and queries
    4         output_attentions       transformers models that compute  they return weights on request; to change
                                      attention in their own code       them, torch_calls changes the softmax
    5         named_modules           any model, with modules=          nothing else sees these weights: the user
                                                                        names the module that they pass through

`generation` adds no weights: it joins the records of several passes into one sequence.
"""

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from regard.activations import generation, named_modules, output_attentions, torch_calls, transformers_attention
from regard.activations.capture_session import CaptureSession, InterventionSession, is_wanted
from regard.activations.forward_tracker import ForwardTracker, and_parents
from regard.activations.modules import is_peft_model, prompt_length, resolve_module
from regard.activations.token_labels import TokenLabeler, TokenLabels
from regard.activations.transformers_attention import inherited_names, names_in_code, uses_interface
from regard.arguments import public
from regard.attention.interventions import (
    Intervention,
    To,
    active_interventions,
    intervene as intervene_in_own,
    note_intervention,
    record_layers,
)
from regard.attention.layer import AttentionLayer, disable_compile
from regard.attention.names import find_name
from regard.attention.records import Recorder, Records
from regard.errors import InputError, is_own, plural, unknown_choice

MIXER = re.compile(
    r"(Attention|Attn|Mixer|MambaLayer|DeltaNet|DeltaRule|ShortConv|ShortConvolution|RecurrentBlock|SSM|"
    r"FourierTransform|Retention|mLSTMLayer)(V?[0-9]+)?$"
)
"""Suffixes of class names whose modules mix the steps of a sequence."""
SOFTMAX = re.compile(r"softmax|scaled_dot_product|multi_head_attention|attention_forward|flex_attention", re.I)
NAME_MODULE = "name the module through which its weights pass"
NO_SOFTMAX = "without softmax attention"
HIDDEN_WEIGHTS = "with weights that no hook sees"


SELECTIVE: tuple[Any, ...] = (output_attentions, named_modules, torch_calls)
"""Mechanisms that track every module of the model."""
# Each mechanism has two functions of a session: `applies` returns whether its model needs the mechanism; `capture`
# passes calls to the session inside a block, and yields the names of known attention layers.
#
# Hooks run in the order of registration, so `output_attentions` reads an output before `generation` ends the
# pass. `torch_calls` skips the modules that `named_modules` captures.
MECHANISMS: tuple[Any, ...] = (transformers_attention, output_attentions, generation, named_modules, torch_calls)


@contextmanager
def record_weights(
    model: Any,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    modules: str | None = None,
    tokenizer: Any = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[Records]:
    """Record the attention weights of any model; yields a mapping from layer name to `Record`.

    Records are added to the mapping while the model runs. A new pass replaces the records of its layers. A pass that
    continues the same sequences (generation with a cache, including beam search) extends the records; in a beam search
    each row belongs to the returned hypothesis. A layer that runs several times in a pass is `name`, `name#1`, ...

    The model's own code computes the output, and gradients flow as usual. Weights are float32 or better. Warns if a run
    of the model records nothing, about parts that a layer cannot record, and about a layer of transformers' attention
    interface whose weights times values differ from its output. Only passes in this thread count.
    """
    if heads is not None and not len(heads):
        raise InputError("heads is empty: give one or more heads, or leave heads out")
    model, modules = resolve_module(model, modules)
    recorder = Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels)
    recorder.interventions = partial(active_interventions, model)
    tracker = ForwardTracker(model)
    labeler = None if tokenizer is None else TokenLabeler(tokenizer)
    token_labels = TokenLabels(labeler, prompt_length(tracker.of_classes(is_peft_model)))
    recorder.tokens = None if tokenizer is None else token_labels.label_layer
    session = CaptureSession(recorder, tracker, layers, token_labels, modules)
    recorder.name_call = partial(own_call_name, tracker, layers)
    left_out = partial(find_missing_layers, session, recorder.parts)
    layer_names = None if layers is None else {name.partition("#")[0] for name in layers}
    with capture(session) as likely, record_layers(regard_layers(tracker), recorder, layer_names):
        check_layers(layers, tracker, likely)
        yield Records(recorder, left_out)
    warn_if_nothing_recorded(model, session, set(recorder.parts))
    # If nothing is recorded, the warning above says so.
    missing = left_out() if recorder.parts or session.refusals else {}
    hidden = {name: why for name, why in missing.items() if not why.endswith(NO_SOFTMAX)}
    if hidden:
        name, why = next(iter(hidden.items()))
        more = f", and {len(hidden) - 1} more like it (records.left_out)" if len(hidden) > 1 else ""
        remedy = f": with modules=, {NAME_MODULE}" if why.endswith(HIDDEN_WEIGHTS) else ""
        warnings.warn(f"not recorded: {name or 'the model'} ({why}){more}{remedy}", stacklevel=3)


@public
@contextmanager
def intervene(
    model: Any,
    layer: str,
    *,
    heads: Sequence[int] | None = None,
    to: To | float = "off",
    query: int | None = None,
    key: int | None = None,
    modules: str | None = None,
) -> Iterator[None]:
    """Change the attention weights of some `heads` of a layer inside the block (None: all heads).

        with regard.intervene(model, "encoder.layer.0.attention.self", heads=[2], to="uniform"):
            model(inputs)

    `model`: a module, a run, or the result of `regard.look`. `layer`: the name of the layer in records;
    `.layers` may be omitted. `to`: "off", "uniform", or the weight (0 to 1) of `query` on `key`; the other
    weights of the row keep their proportions. The change applies to every input of a batch and every hypothesis
    of a search. If a generation uses a cache, `query` is the step in the whole sequence. `modules`: as in
    `record`; `layer` is then one of the matching modules.

    Records show the changed weights, in any nesting order of the blocks. Gradients flow as usual. Raises `InputError`
    for an unknown layer, and, while the model runs, for a head or step out of range. Warns if the layer did not run.

        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        >>> with record_weights(layer) as records, intervene(layer, "self_attn", heads=[1], to="uniform"):
        ...     _ = layer(torch.zeros(1, 4, 8))
        >>> records["self_attn"].weights[0, 1, 0].tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    model, modules = resolve_module(model, modules)
    tracker, (base, _, number) = ForwardTracker(model), layer.partition("#")
    own = find_name(base, regard_layers(tracker))
    if own is not None:
        applied = False

        def is_call(step: int | None) -> bool:
            nonlocal applied
            is_requested = own_call_name(tracker, [layer], own, step) is not None
            applied = applied or is_requested
            return is_requested

        one_of_several = number or len(tracker.names[id(tracker.named[own])]) > 1
        counting = (tracker.track(), is_call) if one_of_several else (nullcontext(), None)
        options: dict[str, Any] = {"heads": heads, "to": to, "query": query, "key": key}
        with counting[0], intervene_in_own(model, own + layer[len(base) :], **options, is_call=counting[1]):
            yield
        if one_of_several and tracker.ran and not applied:
            _warn_unchanged(model, layer)
        return
    change = Intervention(heads=None if heads is None else tuple(heads), to=to, query=query, key=key)
    session = InterventionSession(tracker, layer, change, modules)
    with capture(session) as likely, note_intervention(model, change.describe(layer)):
        check_layers([layer], tracker, likely)
        yield
    if tracker.ran and not session.applied:
        _warn_unchanged(model, layer)


def _warn_unchanged(model: nn.Module, layer: str) -> None:
    warnings.warn(
        f"{type(model).__name__} computed no attention in {layer}, so nothing was changed: record the "
        f"model to list its attention layers",
        stacklevel=4,
    )


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Install the mechanisms that the session's model needs, except own hooks; yields known attention layers."""
    # If only `transformers_attention` is installed, tracking its layers and their parents is enough, and faster.
    mechanisms = [mechanism for mechanism in MECHANISMS if mechanism.applies(session)]
    track_all = any(mechanism in SELECTIVE for mechanism in mechanisms)
    attending = session.tracker.of_classes(lambda part: uses_interface(part) or is_sequence_mixer(type(part)))  # type: ignore[arg-type]
    layers = set(regard_layers(session.tracker))
    with ExitStack() as stack:
        stack.enter_context(disable_compile())
        stack.enter_context(session.tracker.track(None if track_all else attending))
        for mechanism in mechanisms:
            layers |= stack.enter_context(mechanism.capture(session))
        yield layers


@contextmanager
def recorded_path(model: nn.Module) -> Iterator[None]:
    """Make the model use the code path of a recording inside the block; on this path submodules call their hooks."""
    with capture(CaptureSession(Recorder(), ForwardTracker(model), layers=())):
        yield


def regard_layers(tracker: ForwardTracker) -> dict[str, AttentionLayer]:
    layers: Any = tracker.of_classes(lambda module: isinstance(module, AttentionLayer))
    return {name: layer for layer in layers for name in tracker.names[id(layer)]}


def own_call_name(tracker: ForwardTracker, layers: Collection[str] | None, name: str, step: int | None) -> str | None:
    """Count a call of one of Regard's layers; returns the name of the call, or None if it is not requested.

    A layer that runs outside a pass of the whole model, as in stepwise decoding, has one call at each step.
    """
    if tracker.active and tracker.running:
        name = tracker.number(tracker.name_of(tracker.named[name]) or name, step)
    return name if is_wanted(layers, name) else None


def check_layers(layers: Collection[str] | None, tracker: ForwardTracker, likely: set[str]) -> None:
    """Raise `InputError` for names that match no module, with similar names of attention layers."""
    for name in layers or ():
        attending = likely | {name for name in tracker.named if "att" in name.lower()}
        is_root = not name and "" not in likely and bool(attending)  # the root has a layer if no part has one
        if is_root or find_name(name.split("#")[0], tracker.named) is None:
            raise unknown_choice("layer", name, sorted(attending or tracker.named))


@cache
def is_sequence_mixer(cls: Any) -> bool:
    # Only the class name shows it: the code of linear attention consists of products and sums, like any other layer.
    return MIXER.search(cls.__name__) is not None and not (
        cls.__module__.startswith("torch.") or is_own(cls.__module__)
    )


def find_missing_layers(session: CaptureSession, recorded: Collection[str]) -> dict[str, str]:
    """Return the layers that ran and were not recorded: by name, the class and the reason.

    `recorded`: names of records. A layer that contains a recorded layer, or is part of a recorded layer, counts
    as recorded. Two kinds of layers are not recorded: layers without a softmax (Mamba, gated delta rules, short
    convolutions, linear attention), and attention layers whose weights no hook receives.
    """
    names = {name.split("#")[0].rpartition(".stream")[0] or name.split("#")[0] for name in recorded}
    missing = {name: why for name, why in session.refusals.items() if name not in names}
    if not names <= session.tracker.named.keys():  # the model returned weights without naming the layer
        return missing
    for name, count in session.tracker.missed_calls().items():
        if name in names and name not in missing:
            cls = type(session.tracker.named[name]).__name__
            missing[name] = f"{plural(count, 'further call')} of {cls} {HIDDEN_WEIGHTS}"
    names |= missing.keys()
    contain_recorded = {parent for name in names for parent in and_parents(name)}
    for name, module in session.tracker.named.items():
        if name not in session.tracker.seen or not session.wants(name):
            continue
        if not is_sequence_mixer(type(module)):  # type: ignore[arg-type]
            continue
        parents = and_parents(name)
        if name in contain_recorded or not names.isdisjoint(parents):
            continue
        if missing.keys().isdisjoint(parents):
            reason = HIDDEN_WEIGHTS if _computes_softmax(module) else NO_SOFTMAX
            missing[name] = f"{type(module).__name__} {reason}"
    return missing


def _computes_softmax(module: nn.Module) -> bool:
    classes: list[Any] = [type(part) for part in module.modules()]
    return nn.Softmax in classes or any(SOFTMAX.search(name) for cls in classes for name in inherited_names(cls))


def warn_if_nothing_recorded(model: nn.Module, session: CaptureSession, recorded: Collection[str]) -> None:
    """Warn if the model ran and no requested layer was recorded, or if hooks cannot capture some of its attention."""
    if session.layers is not None and not session.layers:
        return
    if not session.tracker.ran or _warn_of_invisible_attention(session, recorded) or recorded or session.refusals:
        return
    name = type(model).__name__
    if session.modules is not None:
        message = f"no attention weights passed through the modules that match {session.modules!r}"
    elif session.layers is not None:
        message = (
            f"{', '.join(session.layers)} computed no attention: record without layers= to list the attention layers"
        )
    else:
        message = (
            f"nothing was recorded: the model calls no known attention; {NAME_MODULE}, as in record(model, "
            "modules='blocks.*.attn_drop')"
        )
    warnings.warn(f"{name} ran, and {message}", stacklevel=4)


def _warn_of_invisible_attention(session: CaptureSession, recorded: Collection[str]) -> bool:
    """Warn about unrecorded modules whose attention hooks cannot capture; returns whether such modules exist."""
    warned, tracker = False, session.tracker
    for module in tracker.of_classes(lambda m: isinstance(m, torch.jit.ScriptModule) or _invisible_attention(m)):
        name, cause = tracker.names[id(module)][0], _invisible_attention(module)
        if cause and session.wants(name) and not any(layer.startswith(name) for layer in recorded):
            warnings.warn(f"{name or type(module).__name__} computes attention with {cause}", stacklevel=5)
            warned = True
    return warned


def _invisible_attention(module: Any) -> str:
    """Return the kind of attention that hooks cannot capture in a module, with the remedy; "" for other modules."""
    if isinstance(module, torch.jit.ScriptModule):
        if any(word in str(module.inlined_graph) for word in ("softmax", "scaled_dot_product_attention")):
            return "compiled TorchScript code, which cannot be recorded: record the original module"
        return ""
    cls: Any = type(module)
    if cls.__module__.startswith(("torch.", "transformers.")) or is_own(cls.__module__):
        return ""
    if "flex_attention" in names_in_code(cls):
        return (
            "flex_attention, which cannot be recorded: with modules=, name the module through which its weights "
            "pass, or use scaled_dot_product_attention while recording"
        )
    return ""
