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
from regard.attention.hooks import AttentionLayer, disable_compile
from regard.attention.interventions import active_interventions
from regard.attention.recording import make_recorder, record_layers
from regard.attention.records import Recorder
from regard.errors import InputError, unknown
from regard.external.caches import following_caches
from regard.external.fastpath import like_fast_path
from regard.external.generation import following_generation
from regard.external.interface import asks_interface, through_interface
from regard.external.keeper import Keeper
from regard.external.kernel import KernelCalls, may_call
from regard.external.labels import Pieces, Read
from regard.external.outputs import by_hand, names_in, through_outputs
from regard.external.passes import Passes
from regard.external.places import at_places
from regard.external.unseen import BY_HAND, left_out, mixes_steps
from regard.external.wrappers import module_of, virtual_tokens


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
    model, at = module_of(model, at)
    check_names(layers)
    recorder = make_recorder(heads, rows, query_labels, key_labels, inside=inside)
    recorder.interventions = partial(active_interventions, model)
    passes = Passes(model)
    read = Read(None if tokenizer is None else Pieces(tokenizer), virtual_tokens(passes.modules.values()))
    recorder.tokens = None if tokenizer is None else read.of
    keeper = Keeper(recorder, passes, layers, read)
    recorder.left_out = lambda: left_out(keeper, recorder.parts)
    own = own_layers(passes)
    with watching(model, keeper, at=at) as peers, record_layers(own, recorder, layers):
        check_layers(layers, passes, peers)
        yield Records(recorder)
    nothing_recorded(model, keeper, set(recorder.parts))
    if recorder.parts:
        unseen = {name: why for name, why in recorder.left_out().items() if why.endswith(BY_HAND)}
        if unseen:
            name, why = next(iter(unseen.items()))
            more = f", and {len(unseen) - 1} more like it (records.left_out)" if len(unseen) > 1 else ""
            warnings.warn(f"not recorded: {name} ({why}){more}", stacklevel=3)


@contextmanager
def watching(model: nn.Module, keeper: Keeper, *, at: str | None = None) -> Iterator[set[str]]:
    """Let a keeper see all attention of a model but that of Regard's layers; yields layers known to attend."""
    own, modules = set(own_layers(keeper.passes)), keeper.passes.modules.values()
    calls = keeper.touches or may_call({type(module) for module in modules})
    alone = at is None and not calls and not by_hand(modules)
    with ExitStack() as stack:
        stack.enter_context(disable_compile())
        some = (each for each in modules if asks_interface(each) or mixes_steps(each))
        stack.enter_context(keeper.passes.watching(some if alone else None))
        peers = stack.enter_context(through_interface(model, keeper))
        if not keeper.touches:
            stack.enter_context(following_generation(model, keeper))
            stack.enter_context(through_outputs(model, keeper))
        # After what is returned has been looked at, a pass is over.
        stack.enter_context(following_caches(model, keeper))
        if at is not None:
            stack.enter_context(at_places(at, keeper))
        if calls:
            stack.enter_context(like_fast_path(keeper.passes))
            stack.enter_context(KernelCalls(keeper, own))
        yield own | peers


@contextmanager
def as_recorded(model: nn.Module) -> Iterator[None]:
    """Run a model in the block on the path on which it is recorded, where layers call their parts' hooks."""
    with watching(model, Keeper(Recorder(), Passes(model), (), Read(None))):
        yield


def own_layers(passes: Passes) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model that are Regard's, by their dotted names."""
    return {name: each for name, each in passes.modules.items() if isinstance(each, AttentionLayer)}


def check_names(layers: Collection[str] | None) -> None:
    """Raise `InputError` for one name that is given instead of several."""
    if isinstance(layers, str):
        raise InputError(f"layers is the text {layers!r}: give a list of names, [{layers!r}]")


def check_layers(layers: Collection[str] | None, passes: Passes, likely: set[str]) -> None:
    """Refuse names that are no modules', with near ones among those that attend."""
    known = {each for name in passes.names.values() for each in (name, short_name(name))}
    attending = likely | {name for name in known if "att" in name.lower()}
    for name in layers or ():
        if name.split("#")[0] not in known:
            raise unknown("layer", name, sorted(attending or known))


def _warn_of_unseen(keeper: Keeper, recorded: Collection[str]) -> bool:
    """Warn of modules beside the recorded ones that attend unseen; say whether any does."""
    warned = False
    for name, module in keeper.passes.modules.items():
        how = _unseen(module)
        if how and keeper.wants(name) and not any(each.startswith(name) for each in recorded):
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
    if "flex_attention" in names_in(kind):
        return (
            "flex_attention, which is not seen: name where its weights pass, with at=, or take"
            " scaled_dot_product_attention meanwhile"
        )
    return ""


def nothing_recorded(model: nn.Module, keeper: Keeper, recorded: Collection[str]) -> None:
    """Warn where a model ran, and nothing of what was asked for was recorded, or not all that attends."""
    if keeper.layers is not None and not keeper.layers:
        return
    if not keeper.passes.ran or _warn_of_unseen(keeper, recorded) or recorded:
        return
    name = type(model).__name__
    if keeper.layers is not None:
        message = f"{', '.join(keeper.layers)} did not attend: record without layers to see which do"
    else:
        message = (
            "nothing was recorded: it calls no attention that is known; name the module through which its weights"
            " pass, as in record(model, at='blocks.*.attn_drop')"
        )
    warnings.warn(f"{name} ran, and {message}", stacklevel=4)
