"""Components of external models: contexts of heads, and feed-forward layers, found by the modules' structure."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import short_name
from regard.attention.components import Components, HeadContexts
from regard.attention.head_inputs import KINDS, HeadInputs, Kind, Part
from regard.attention.interventions import suspend_interventions
from regard.errors import InputError
from regard.external.head_pruning import find_output
from regard.external.modules import is_transformers_model
from regard.external.shrinking import GROUP_COUNTS, QUERIES, VALUES, find_part, projection_width
from regard.external.value_vectors import Recording, read_values
from regard.interpret.frozen_norms import is_linear, is_norm
from regard.viz import Layer

UNKNOWN_PROJECTION = "the projection after its heads is not known"
UNKNOWN_MODULES = "nn.MultiheadAttention computes queries, keys and values without modules"
NO_MODULE = "no module of the layer writes the {kind} vectors of single heads"
MIXED = "each {kind} vector depends on what {module} writes for several heads"
NO_COPIES = "its heads share keys and values, and its code accepts no copy for each head"
REPEATS = ("num_key_value_groups", "n_rep", "n_kv_groups", "num_queries_per_kv")
"""Attributes of layers: the number of heads that share a key."""
SMALL = 0.1
"""Factor of queries and keys while they are found."""
COLLINEAR = 1e-4
"""Largest squared sine of the angle between two gradients with respect to values, relative to 1."""
NO_FEED_FORWARD = "no feed-forward layer was found"


def head_projections(model: nn.Module, layers: Sequence[Layer]) -> dict[str, nn.Module]:
    """Return, by layer, the output projection of the heads; layers with an unknown projection are left out.

    The input of the projection (B, Tq, H Dv) is the concatenation of the contexts of all heads.
    """
    modules = dict(model.named_modules())
    full_names = {short_name(name): name for name in modules}
    projections = {}
    for layer in layers:
        name = full_names.get(layer.name)
        output = None if name is None else find_output(modules, name)
        if name is None or output is None or projection_width(modules[output], 1) % layer.heads:
            continue
        if not _reads_more(modules[name], modules[output]):
            projections[layer.name] = modules[output]
    return projections


def _reads_more(layer: nn.Module, output: nn.Module) -> bool:
    """Return whether the input of an output projection contains more than the contexts of the heads.

    ConvBERT concatenates the output of a convolution to the contexts: its queries and values have one width, and
    the input of the projection has another. With shared keys, queries and values have different widths.
    """
    query, values = find_part(layer, QUERIES), find_part(layer, VALUES)
    if query is None or values is None:
        return False
    width = projection_width(query, 0)
    return width == projection_width(values, 0) != projection_width(output, 1)


def find_contexts(
    model: nn.Module,
    layers: Sequence[Layer],
    intervene: Callable[..., AbstractContextManager[None]],
    run: Callable[[], object],
) -> dict[str, HeadContexts]:
    """Return, by layer, the contexts of its heads, for layers whose output projection is known."""
    # A name in a user's own module may be that of something else.
    projections = head_projections(model, layers) if is_transformers_model(model) else {}
    modules = {short_name(name): module for name, module in model.named_modules()}
    unknown = [
        layer
        for layer in layers
        if layer.name not in projections and not isinstance(modules.get(layer.name), nn.MultiheadAttention)
    ]
    if unknown:
        projections |= _observe_projections(model, unknown, intervene, run)
    contexts = {}
    for layer in layers:
        module = modules.get(layer.name)
        if isinstance(module, nn.MultiheadAttention):
            contexts[layer.name] = HeadContexts(module, layer.heads, is_torch=True)
        elif layer.name in projections:
            contexts[layer.name] = HeadContexts(projections[layer.name], layer.heads)
    return contexts


@torch.no_grad()
def _observe_projections(
    model: nn.Module,
    layers: Sequence[Layer],
    intervene: Callable[..., AbstractContextManager[None]],
    run: Callable[[], object],
) -> dict[str, nn.Module]:
    """Return, by layer, the linear module that reads the contexts of its heads side by side.

    If a head is switched off, its part of the input of this module becomes zero, and no other part changes.
    """
    modules = {short_name(name): module for name, module in model.named_modules()}

    def read_inputs() -> dict[nn.Module, Tensor]:
        inputs: dict[nn.Module, Tensor] = {}

        def keep(module: nn.Module, args: Any) -> None:
            inputs.setdefault(module, args[0])

        with ExitStack() as stack:
            for module in filter(is_linear, model.modules()):
                stack.callback(module.register_forward_pre_hook(keep).remove)
            run()
        return inputs

    def reads_head(before: Tensor, after: Tensor, heads: int, head: int) -> bool:
        if before.dim() < 3 or before.shape[-1] % heads:
            return False
        before, after = (states.unflatten(-1, (heads, -1)) for states in (before, after))
        others = [other for other in range(heads) if other != head]
        is_off = bool(before[..., head, :].any()) and not after[..., head, :].any()
        return is_off and torch.allclose(before[..., others, :], after[..., others, :], atol=1e-5)

    projections: dict[str, nn.Module] = {}
    before = read_inputs()
    for layer in layers:
        near = set(modules.get(layer.name.rpartition(".")[0], model).modules())
        for head in range(layer.heads):
            try:
                with intervene(layer.name, heads=[head]):
                    after = read_inputs()
            except InputError:
                break
            matching = [
                module
                for module, states in before.items()
                if module in near and module in after and reads_head(states, after[module], layer.heads, head)
            ]
            if matching:
                projections[layer.name] = matching[0]
                break
    return projections


def find_external_components(
    model: nn.Module,
    layers: Sequence[Layer],
    recording: Recording,
    intervene: Callable[..., AbstractContextManager[None]],
    run: Callable[[], object],
) -> Components:
    """Return the components of an external model with the attention layers `layers`.

    `recording` records the layers, `intervene` changes one, and `run` runs the model on an example.

    A block is a member of the outermost list of modules that holds an attention layer. The feed-forward layer of
    a block is its last module that has a matrix, and contains no attention, embedding or normalization: `mlp` in
    Llama, `output.dense` in BERT, `fc2` in OPT.
    """
    contexts = find_contexts(model, layers, intervene, run)
    left_out = {layer.name: UNKNOWN_PROJECTION for layer in layers if layer.name not in contexts}
    modules = dict(model.named_modules())
    full_names = {short_name(name): name for name in modules}
    attention = {full_names[layer.name] for layer in layers if layer.name in full_names}
    projections = {context.projection for context in contexts.values()}
    feed_forward = {}
    holders = {name: block for name in attention if (block := _find_block(modules, name)) is not None}
    blocks = list(dict.fromkeys(holders[name] for name in sorted(holders)))
    for block in blocks:
        name = _find_feed_forward(modules, block, attention, projections)
        if name is None:
            left_out[short_name(block)] = NO_FEED_FORWARD
        else:
            feed_forward[short_name(name)] = modules[name]
    order = {name: place for place, name in enumerate(full_names)}
    find_inputs = cache(partial(find_head_inputs, model, contexts, run))
    return Components(
        heads=contexts,
        feed_forward=dict(sorted(feed_forward.items(), key=lambda item: order[item[0]])),
        left_out=left_out,
        blocks={short_name(block): modules[block] for block in sorted(blocks, key=list(modules).index)},
        states={short_name(name): modules[block] for name, block in holders.items()},
        read_values=partial(read_values, model, contexts, recording, find_inputs),
        find_inputs=find_inputs,
    )


@torch.enable_grad()
def find_head_inputs(
    model: nn.Module, contexts: Mapping[str, HeadContexts], run: Callable[[], object]
) -> tuple[dict[str, HeadInputs], dict[str, str]]:
    """Return, by layer, where its queries, keys and values are computed; and the other layers, with the reason.

    `run` runs the model on one input of several steps. The places are found by gradients, so that names and order
    of columns do not matter: of all columns that a module inside the layer writes, those of the queries of a head
    change its context at their own step only, those of its keys and values also at other steps. The context is
    linear in the values. The last module counts whose columns belong to single heads: the norm, where one follows
    the projection.
    """
    modules = {short_name(name): module for name, module in model.named_modules()}
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
            beside = modules.get(name.rpartition(".")[0], modules[name])
            inside = [part for part in modules[name].modules() if part is not modules[name]]
            near = inside if any(is_linear(part) and part is not layer.projection for part in inside) else [*beside.modules()]
            for part in near:
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
    shared = {name: inputs for name, inputs in found.items() if inputs.counts}
    if shared and not _accepts_copies(shared, contexts, run):
        reasons |= dict.fromkeys(shared, NO_COPIES)
        found = {name: inputs for name, inputs in found.items() if name not in shared}
    return found, {name: reasons.get(name, "it did not run") for name in contexts if name not in found}


def _separate(
    layer: nn.Module, heads: int, context: Tensor, places: Mapping[nn.Module, Tensor]
) -> HeadInputs | str:
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
            torch.autograd.grad(
                (split[head] * row).sum(), list(places.values()), retain_graph=True, allow_unused=True
            )
            for row in weights
        ]
        for module, *gradients in zip(places, *both, strict=True):
            if gradients[0] is None:
                continue
            first, second = (gradient[0].double() for gradient in gradients)
            others = torch.arange(len(first), device=first.device) != last
            elsewhere = (first[others] != 0).any(0)
            products = (first[others] * second[others]).sum(0).square()
            norms = first[others].square().sum(0) * second[others].square().sum(0)
            is_value = elsewhere & (norms - products <= COLLINEAR * norms)
            for kind, mask in zip(KINDS, ((first != 0).any(0) & ~elsewhere, elsewhere & ~is_value, is_value), strict=True):
                masks[kind].setdefault(module, []).append(mask.cpu())
    parts, order = {}, list(places)
    for kind in KINDS:
        known = {module: columns for module, rows in masks[kind].items() if (columns := _columns(rows, heads)) is not None}
        if not known:
            mixed = [module for module, rows in masks[kind].items() if rows and rows[0].any()]
            return NO_MODULE.format(kind=kind) if not mixed else MIXED.format(kind=kind, module=type(mixed[-1]).__name__)
        module, columns = list(known.items())[-1]
        width = places[module].shape[-1]
        linear = [
            part
            for part in order[: order.index(module) + 1]
            if is_linear(part) and places[part].shape[-1] == width and any(row.any() for row in masks[kind].get(part, ()))
        ]
        parts[kind] = Part(module, columns, linear[-1] if linear else None)
    groups = {len(part.columns) for part in parts.values()} - {heads}
    counts: dict[str, int] = {}
    for count in groups:
        counts |= {name: heads for name in (*GROUP_COUNTS, "kv_heads") if getattr(layer, name, None) == count}
        counts |= {name: 1 for name in REPEATS if getattr(layer, name, None) == heads // count}
    return NO_COPIES if groups and not counts else HeadInputs(parts, heads, layer, counts)


def _columns(masks: Sequence[Tensor], heads: int) -> Tensor | None:
    """Return the columns (G, d) of G groups of heads in masks (any) of each head; None if heads overlap.

    >>> _columns([torch.tensor([True, False]), torch.tensor([False, True])], 2).tolist()
    [[0], [1]]
    """
    columns = list(dict.fromkeys(tuple(mask.nonzero().flatten().tolist()) for mask in masks))
    groups = len(columns)
    flat = [column for own in columns for column in own]
    if len(masks) != heads or not flat or len(set(flat)) != len(flat) or len({len(own) for own in columns}) != 1:
        return None
    expected = [columns[head * groups // heads] for head in range(heads)] if heads % groups == 0 else []
    if [tuple(mask.nonzero().flatten().tolist()) for mask in masks] != expected:
        return None
    return torch.tensor(columns)


@torch.no_grad()
def _accepts_copies(
    inputs: Mapping[str, HeadInputs], contexts: Mapping[str, HeadContexts], run: Callable[[], object]
) -> bool:
    """Return whether a model computes the same if each head gets a copy of the keys that it shares."""
    passes: list[list[Tensor]] = []
    for changed in ({}, inputs):
        read: list[Tensor] = []
        with ExitStack() as stack:
            for layer in changed.values():
                stack.enter_context(layer.replace(lambda kind, value: value))
            for name in inputs:
                stack.enter_context(contexts[name].replace(lambda context, read=read: read.append(context) or context))
            try:
                run()
            except (RuntimeError, ValueError, InputError):
                return False
        passes.append(read)
    return all(torch.allclose(*pair, atol=1e-4, rtol=1e-3) for pair in zip(*passes, strict=True))


def _find_block(modules: dict[str, nn.Module], layer: str) -> str | None:
    """Return the name of the block that holds a layer; None if the layer is in no list of modules."""
    parts = layer.split(".")
    for end in range(1, len(parts)):
        if isinstance(modules[".".join(parts[:end])], nn.ModuleList | nn.Sequential):
            return ".".join(parts[: end + 1])
    return None


def _find_feed_forward(
    modules: dict[str, nn.Module], block: str, attention: set[str], projections: set[nn.Module]
) -> str | None:
    """Return the name of the largest module that is last in a block and is a feed-forward layer."""
    largest: list[str] = []
    for name, module in modules.items():
        inside = name.startswith(f"{block}.")
        if not inside or any(f"{name}.".startswith(f"{known}.") for known in (*attention, *largest)):
            continue
        parts = list(module.modules())
        if any(known.startswith(f"{name}.") for known in attention) or not projections.isdisjoint(parts):
            continue
        has_matrix = any(parameter.dim() > 1 for parameter in module.parameters())
        if has_matrix and not any(isinstance(part, nn.Embedding) or is_norm(part) for part in parts):
            largest.append(name)
    return largest[-1] if largest else None
