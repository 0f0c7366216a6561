"""Components of external models: contexts of heads, and feed-forward layers, found by the modules' structure."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from regard.attention import short_name
from regard.attention.components import Components, HeadContexts
from regard.attention.head_inputs import HeadInputs
from regard.external.head_pruning import find_output
from regard.external.shrinking import FUSED, KEYS, QUERIES, VALUES, find_part, projection_width
from regard.external.value_vectors import Recording, read_values
from regard.interpret.frozen_norms import is_norm
from regard.viz import Layer

UNKNOWN_PROJECTION = "the projection after its heads is not known"
UNKNOWN_INPUTS = "its queries, keys and values are not separate projections"
REPEATS = "num_key_value_groups"
"""Attribute of transformers' layers: the number of heads that share a key."""
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


def find_contexts(model: nn.Module, layers: Sequence[Layer]) -> dict[str, HeadContexts]:
    """Return, by layer, the contexts of its heads, for layers whose output projection is known."""
    projections = head_projections(model, layers)
    modules = {short_name(name): module for name, module in model.named_modules()}
    contexts = {}
    for layer in layers:
        module = modules.get(layer.name)
        if isinstance(module, nn.MultiheadAttention):
            contexts[layer.name] = HeadContexts(module, layer.heads, is_torch=True)
        elif layer.name in projections:
            contexts[layer.name] = HeadContexts(projections[layer.name], layer.heads)
    return contexts


def find_external_components(model: nn.Module, layers: Sequence[Layer], recording: Recording) -> Components:
    """Return the components of an external model with the attention layers `layers`; `recording` records them.

    A block is a member of the outermost list of modules that holds an attention layer. The feed-forward layer of
    a block is its last module that has a matrix, and contains no attention, embedding or normalization: `mlp` in
    Llama, `output.dense` in BERT, `fc2` in OPT.
    """
    contexts = find_contexts(model, layers)
    left_out = {layer.name: UNKNOWN_PROJECTION for layer in layers if layer.name not in contexts}
    modules = dict(model.named_modules())
    full_names = {short_name(name): name for name in modules}
    attention = {full_names[layer.name] for layer in layers if layer.name in full_names}
    projections = {context.projection for context in contexts.values()}
    feed_forward, no_feed_forward = {}, {}
    holders = {name: block for name in attention if (block := _find_block(modules, name)) is not None}
    blocks = list(dict.fromkeys(holders[name] for name in sorted(holders)))
    for block in blocks:
        name = _find_feed_forward(modules, block, attention, projections)
        if name is None:
            no_feed_forward[short_name(block)] = NO_FEED_FORWARD
        else:
            feed_forward[short_name(name)] = modules[name]
    order = {name: place for place, name in enumerate(full_names)}
    inputs = {name: _find_head_inputs(modules[full_names[name]], layer.heads) for name, layer in contexts.items()}
    return Components(
        heads=contexts,
        feed_forward=dict(sorted(feed_forward.items(), key=lambda item: order[item[0]])),
        left_out=left_out,
        head_inputs={name: known for name, known in inputs.items() if known is not None},
        inputs_left_out={name: UNKNOWN_INPUTS for name, known in inputs.items() if known is None},
        blocks={short_name(block): modules[block] for block in sorted(blocks, key=list(modules).index)},
        states={short_name(name): modules[block] for name, block in holders.items()},
        read_values=partial(read_values, model, contexts, recording),
        feed_forward_left_out=no_feed_forward,
    )


def _find_head_inputs(layer: nn.Module, heads: int) -> HeadInputs | None:
    """Return the projections of a layer; None if they are not modules with known names."""
    fused = find_part(layer, [FUSED])
    if fused is not None:
        return HeadInputs((fused,), heads, heads) if projection_width(fused, 0) % (3 * heads) == 0 else None
    parts = [find_part(layer, names) for names in (QUERIES, KEYS, VALUES)]
    if isinstance(layer, nn.MultiheadAttention) or any(part is None for part in parts):
        return None
    groups = heads * projection_width(parts[1], 0) // projection_width(parts[0], 0)
    if groups == heads:
        return HeadInputs(tuple(parts), heads, heads)
    # Without shared keys, transformers repeats no key.
    norms = [module for module in layer.modules() if is_norm(module) and module is not layer]
    mixes = any(
        parameter.numel() == projection_width(parts[1], 0) != projection_width(parts[1], 0) // groups
        for norm in norms
        for parameter in norm.parameters()
    )  # OLMo 2 normalizes the keys of all heads together
    known = getattr(layer, REPEATS, None) == heads // groups and not mixes
    return HeadInputs(tuple(parts), heads, groups, (layer, REPEATS, 1)) if known else None


def _find_block(modules: dict[str, nn.Module], layer: str) -> str | None:
    """Return the name of the block that holds a layer; None if the layer is in no list of modules."""
    parts = layer.split(".")
    for end in range(1, len(parts)):
        if isinstance(modules[".".join(parts[:end])], nn.ModuleList):
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
