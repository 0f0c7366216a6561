"""Components of external models: contexts of heads, and feed-forward layers, found by the modules' structure."""

from collections.abc import Sequence

from torch import nn

from regard.attention import short_name
from regard.attention.components import Components, HeadContexts
from regard.attention.head_inputs import HeadInputs
from regard.external.head_pruning import prunable_layers
from regard.external.shrinking import FUSED, KEYS, QUERIES, VALUES, find_part, projection_width
from regard.viz import Layer

UNKNOWN_PROJECTION = "the projection after its heads is not known"
UNKNOWN_INPUTS = "its queries, keys and values are not separate projections"
REPEATS = "num_key_value_groups"
"""Attribute of transformers' layers: the number of heads that share a key."""
NO_FEED_FORWARD = "no feed-forward layer was found"


def find_contexts(model: nn.Module, layers: Sequence[Layer]) -> dict[str, HeadContexts]:
    """Return, by layer, the contexts of its heads, for layers whose output projection is known."""
    contexts = {
        name: HeadContexts(layer.output, layer.heads) for name, layer in prunable_layers(model, layers).items()
    }
    modules = {short_name(name): module for name, module in model.named_modules()}
    for layer in layers:
        module = modules.get(layer.name)
        if isinstance(module, nn.MultiheadAttention):
            contexts[layer.name] = HeadContexts(module, layer.heads, is_torch=True)
    return {layer.name: contexts[layer.name] for layer in layers if layer.name in contexts}


def find_external_components(model: nn.Module, layers: Sequence[Layer]) -> Components:
    """Return the components of an external model with the attention layers `layers`.

    A block is a member of the outermost list of modules that holds an attention layer. The feed-forward layer of
    a block is its last module that has linear layers, and contains no attention and no normalization: `mlp` in
    Llama, `output.dense` in BERT, `fc2` in OPT.
    """
    contexts = find_contexts(model, layers)
    left_out = {layer.name: UNKNOWN_PROJECTION for layer in layers if layer.name not in contexts}
    modules = dict(model.named_modules())
    full_names = {short_name(name): name for name in modules}
    attention = {full_names[layer.name] for layer in layers if layer.name in full_names}
    projections = {context.projection for context in contexts.values()}
    feed_forward = {}
    blocks = list(dict.fromkeys(filter(None, (_find_block(modules, name) for name in sorted(attention)))))
    for block in blocks:
        name = _find_feed_forward(modules, block, attention, projections)
        if name is None:
            left_out[short_name(block)] = NO_FEED_FORWARD
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
    norms = [module for module in layer.modules() if _is_norm(module) and module is not layer]
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
        if any(map(_is_linear, parts)) and not any(map(_is_norm, parts)):
            largest.append(name)
    return largest[-1] if largest else None


def _is_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("Norm")


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__.endswith(("Linear", "Conv1D"))
