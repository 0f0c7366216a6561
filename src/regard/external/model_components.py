"""Components of external models: contexts of heads, and feed-forward layers, found by the modules' structure."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.activations.components import KINDS, Components, HeadContexts, HeadInputs, Kind, ProjectedPart
from regard.activations.forward_tracker import modules_by_name
from regard.activations.interface import find_block, find_feed_forward, is_linear
from regard.activations.weights import intervene
from regard.attention.interventions import suspend_interventions
from regard.attention.layer import Attention
from regard.errors import InputError
from regard.external.shrinking import GROUP_COUNTS
from regard.viz.subject import Layer

UNKNOWN_PROJECTION = "the projection after its heads is not known"
SHARED = "another layer shares its module, and a patch of the module would change both"
UNKNOWN_MODULES = "nn.MultiheadAttention computes queries, keys and values without modules"
NO_MODULE = "no module of the layer writes the {kind} vectors of single heads"
NO_COPIES = "its heads share keys and values, and its code accepts no copy for each head"
REPEATS = ("num_key_value_groups", "n_rep", "n_kv_groups", "num_queries_per_kv")
"""Attributes of layers: the number of heads that share a key."""
SMALL = 0.1
"""Factor of queries and keys while they are found."""
COLLINEAR = 1e-4
"""Largest squared sine of the angle between two gradients with respect to values, relative to 1."""
NO_FEED_FORWARD = "no feed-forward layer was found"


@torch.no_grad()
def find_contexts(subject: Any, run: Callable[[], object]) -> dict[str, HeadContexts]:
    """Return, by layer, the contexts of its heads, for layers whose output projection is known.

    The input of the projection (B, Tq, H Dv) is the concatenation of the contexts of all heads: if a head is
    switched off, its part becomes zero, and no other part does. `run` runs the model on an example.
    """
    modules = modules_by_name(subject.model)
    layers = [layer for layer in subject.layers if layer.name in modules]
    # A patch of a shared module would change the layers of all its names: the first one has the contexts.
    layers = list({modules[layer.name]: layer for layer in reversed(layers)}.values())[::-1]
    contexts = {
        layer.name: HeadContexts(modules[layer.name], layer.heads, is_torch=True)
        for layer in layers
        if isinstance(modules[layer.name], nn.MultiheadAttention)
    }
    for layer in layers:
        if isinstance(module := modules[layer.name], Attention):  # a layer of Regard without projections
            contexts[layer.name] = HeadContexts(module, 1, is_output=True)
    before = _linear_inputs(subject, run, 0, ())
    for head in range(max((layer.heads for layer in layers), default=0)):
        unknown = [layer for layer in layers if layer.name not in contexts and head < layer.heads]
        after = _linear_inputs(subject, run, head, unknown) if unknown else {}
        for layer in unknown:
            # The projection is in the layer, or beside it as in BERT, but not in another layer.
            others = {part for other in layers if other != layer for part in modules[other.name].modules()}
            beside = [part for part in modules[layer.name.rpartition(".")[0]].modules() if part not in others]
            for module in (*modules[layer.name].modules(), *beside):
                if module not in after or module not in before or before[module].shape[-1] % layer.heads:
                    continue
                zero = [
                    ~states[module].unflatten(-1, (layer.heads, -1)).transpose(-2, 0).flatten(1).any(1)
                    for states in (before, after)
                ]
                if (~zero[0] & zero[1]).nonzero().flatten().tolist() == [head]:
                    contexts.setdefault(layer.name, HeadContexts(module, layer.heads))
    return {layer.name: contexts[layer.name] for layer in layers if layer.name in contexts}


def _linear_inputs(
    subject: Any, run: Callable[[], object], head: int, layers: Sequence[Layer]
) -> dict[nn.Module, Tensor]:
    """Return what each linear module reads while a head of some layers is off."""
    inputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, args: Any) -> None:
        inputs.setdefault(module, args[0])

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(intervene(subject, layer.name, heads=[head]))
        for module in filter(is_linear, subject.model.modules()):
            stack.callback(module.register_forward_pre_hook(keep).remove)
        run()
    return inputs


def find_external_components(subject: Any, run: Callable[[], object]) -> Components:
    """Return the components of an `ExternalModel`; `run` runs the model on an example.

    A block is a member of the outermost list of modules that holds an attention layer. The feed-forward layer of
    a block is its last module that has a matrix, and contains no attention, embedding or normalization: `mlp` in
    Llama, `output.dense` in BERT, `fc2` in OPT.
    """
    model, layers, contexts = subject.model, subject.layers, find_contexts(subject, run)
    modules = modules_by_name(model)
    known = [modules[name] for name in contexts]
    left_out = {
        layer.name: SHARED if modules.get(layer.name) in known else UNKNOWN_PROJECTION
        for layer in layers
        if layer.name not in contexts
    }
    attention = {layer.name for layer in layers if layer.name in modules}
    projections = {context.projection for context in contexts.values()}
    holders = {name: block for name in attention if (block := find_block(modules, name)) is not None}
    blocks = [name for name in modules if name in holders.values()]  # in the order of the model
    found = {block: find_feed_forward(modules, block, attention, projections) for block in blocks}
    names = {name for name in found.values() if name is not None}
    return Components(
        heads=contexts,
        feed_forward={name: module for name, module in modules.items() if name in names},
        left_out=left_out,
        blocks={block: modules[block] for block in blocks},
        states={name: modules[block] for name, block in holders.items()},
        find_inputs=cache(partial(find_head_inputs, model, contexts, run)),
        feed_forward_left_out={block: NO_FEED_FORWARD for block, name in found.items() if name is None},
    )


@torch.enable_grad()
def find_head_inputs(
    model: nn.Module, contexts: Mapping[str, HeadContexts], run: Callable[[], object]
) -> tuple[dict[str, HeadInputs], dict[str, str]]:
    """Return, by layer, where its queries, keys and values are computed; and the other layers, with the reason.

    `run` runs the model on one input of several steps. Gradients find the places, whatever their names and the
    order of their columns: the queries of a head change its context at their own step only, its keys and values
    also at other steps, and the context is linear in the values. The last module whose columns belong to single
    heads counts: the norm, where one follows the projection.
    """
    modules = modules_by_name(model)
    read: dict[str, Tensor] = {}
    places: dict[str, dict[nn.Module, Tensor]] = {name: {} for name in contexts}
    reasons = {name: UNKNOWN_MODULES for name, layer in contexts.items() if layer.is_torch}

    def keep(written: dict[nn.Module, Tensor], module: nn.Module, args: Any, output: Any) -> Tensor | None:
        if module in written or not isinstance(output, Tensor) or output.dim() != 3 or len(output) != 1:
            return None
        written[module] = output if output.requires_grad else output.detach().requires_grad_()
        return written[module] * SMALL  # a softmax that puts all weight on one key has no gradient

    def keep_context(name: str, context: Tensor) -> Tensor:
        read.setdefault(name, context)
        return context

    with ExitStack() as stack:
        stack.enter_context(suspend_interventions())
        for name, layer in contexts.items():
            if name in reasons:
                continue
            stack.enter_context(layer.replace(partial(keep_context, name)))
            # In some models, the projections are beside the module that computes attention.
            for part in modules.get(name.rpartition(".")[0], model).modules():
                if part not in layer.projection.modules():
                    stack.callback(part.register_forward_hook(partial(keep, places[name])).remove)
        run()
    found = {}
    for name, layer in contexts.items():
        if name not in reasons and name in read:
            inputs = _separate(modules[name], layer.heads, read[name], places[name])
            if isinstance(inputs, str):
                reasons[name] = inputs
            else:
                found[name] = inputs
    shared = {
        name: inputs
        for name, inputs in found.items()
        if any(len(part.columns) < inputs.heads for part in inputs.parts.values())
    }
    if not all(inputs.counts for inputs in shared.values()) or not _accepts_copies(shared, contexts, run):
        reasons |= dict.fromkeys(shared, NO_COPIES)
    return found, reasons | {name: "it did not run" for name in contexts if name not in {**found, **reasons}}


def _separate(layer: nn.Module, heads: int, context: Tensor, places: Mapping[nn.Module, Tensor]) -> HeadInputs | str:
    """Return the inputs of the heads of a layer with contexts (1, Tq, H Dv), or why they cannot be separated."""
    last = context.shape[1] - 1
    split = context[0, last].unflatten(-1, (heads, -1))
    draws = torch.Generator().manual_seed(0)
    masks: dict[Kind, dict[nn.Module, list[Tensor]]] = {kind: {} for kind in KINDS}
    if last < 2:
        return f"they are found on an input of three or more steps, and the example has {last + 1}"
    for head in range(heads if split.requires_grad else 0):
        weights = torch.randn(2, split.shape[-1], generator=draws).to(split)
        both = [
            torch.autograd.grad((split[head] * row).sum(), list(places.values()), retain_graph=True, allow_unused=True)
            for row in weights
        ]
        for module, *gradients in zip(places, *both, strict=True):
            if gradients[0] is None:
                continue
            first, second = (gradient[0].double() for gradient in gradients)
            others = torch.arange(len(first), device=first.device) != last
            own, elsewhere = (first[~others] != 0).any(0), (first[others] != 0).any(0)
            similarity = torch.cosine_similarity(first[others], second[others], dim=0, eps=1e-30).square()
            is_value = elsewhere & (1 - similarity <= COLLINEAR)
            for kind, mask in zip(KINDS, (own & ~elsewhere, elsewhere & ~is_value, is_value), strict=True):
                masks[kind].setdefault(module, []).append(mask.cpu())
    parts, order = {}, list(places)
    for kind in KINDS:
        found = [(module, _columns(rows, heads)) for module, rows in masks[kind].items()]
        known = {module: columns for module, columns in found if columns is not None}
        if not known:
            return NO_MODULE.format(kind=kind)
        module = list(known)[-1]
        linear = [
            part
            for part in order[: order.index(module) + 1]
            if is_linear(part) and places[part].shape == places[module].shape
            if part in masks[kind] and masks[kind][part][0].any()
        ]
        parts[kind] = ProjectedPart(module, known[module], linear[-1] if linear else None)
    groups = {len(part.columns) for part in parts.values()} - {heads}
    counts: dict[str, int] = {}
    for count in groups:
        counts |= {name: heads for name in (*GROUP_COUNTS, "kv_heads") if getattr(layer, name, None) == count}
        counts |= {name: 1 for name in REPEATS if getattr(layer, name, None) == heads // count}
    return HeadInputs(parts, heads, layer, counts)


def _columns(masks: Sequence[Tensor], heads: int) -> Tensor | None:
    """Return the columns (G, d) of G groups of heads in masks (any) of each head; None if heads overlap.

    >>> _columns([torch.tensor([True, False]), torch.tensor([False, True])], 2).tolist()
    [[0], [1]]
    """
    columns = [tuple(mask.nonzero().flatten().tolist()) for mask in masks]
    groups = list(dict.fromkeys(columns))
    shared = heads // len(groups)
    is_ordered = columns == [group for group in groups for _ in range(shared)] and len(columns) == heads
    sizes = {len(group) for group in groups}
    is_disjoint = len(set().union(*groups)) == sum(map(len, groups))
    return torch.tensor(groups) if is_ordered and is_disjoint and len(sizes) == 1 and 0 not in sizes else None


@torch.no_grad()
def _accepts_copies(
    inputs: Mapping[str, HeadInputs], contexts: Mapping[str, HeadContexts], run: Callable[[], object]
) -> bool:
    """Return whether a model computes the same if each head gets a copy of the keys that it shares."""
    passes: list[list[Tensor]] = [[], []]
    for read, changed in zip(passes, ((), inputs.values()), strict=True):

        def keep(context: Tensor, read: list[Tensor] = read) -> Tensor:
            read.append(context)
            return context

        with ExitStack() as stack:
            for layer in changed:
                stack.enter_context(layer.replace(lambda kind, value: value))
            for name in inputs:
                stack.enter_context(contexts[name].replace(keep))
            try:
                run()
            except (RuntimeError, ValueError, InputError):
                return False
    return all(torch.allclose(one, other, atol=1e-4, rtol=1e-3) for one, other in zip(*passes, strict=True))
