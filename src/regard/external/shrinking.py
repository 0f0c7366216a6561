"""Attention layers with fewer heads: remove rows of the projections, and columns of the output projection.

This file imports only PyTorch: transformers runs a copy of it in the folder of a pruned model.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

QUERIES = ("q_proj", "query", "q_lin", "q", "query_proj")
KEYS = ("k_proj", "key", "k_lin", "k", "key_proj")
VALUES = ("v_proj", "value", "v_lin", "v", "value_proj")
OUTPUTS = ("o_proj", "out_proj", "out_lin", "o", "dense", "output.dense", "c_proj", "output")
FUSED = "c_attn"
"""Names of projections that compute queries, keys and values at once, in this order, as in GPT-2."""
HEAD_COUNTS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads")
GROUP_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
WIDTHS = ("all_head_size", "inner_dim", "embed_dim", "split_size")
BIASES, HAS_BIASES, COMPUTES_BIASES = ("relative_attention_bias", "has_relative_attention_bias", "biases_are_its_own")
"""Attributes of T5: the embedding of distances (one number per head), whether a layer has an embedding, and
whether it computes its own bias."""


def find_part(layer: nn.Module, names: Sequence[str]) -> Any:
    """Return the first submodule with weights that has one of these names; None if there is no such submodule."""
    parts = dict(layer.named_modules())
    return next((parts[name] for name in names if name in parts and hasattr(parts[name], "weight")), None)


def projection_width(projection: nn.Module, side: int) -> int:
    """Return the output width (side 0) or input width (side 1) of a projection; GPT-2 transposes its matrices.

    >>> projection_width(nn.Linear(8, 4), 0), projection_width(nn.Linear(8, 4), 1)
    (4, 8)
    """
    weight: Any = projection.weight
    return int(weight.shape[side if isinstance(projection, nn.Linear) else 1 - side])


def shrink(layer: nn.Module, output: nn.Module, heads: int, kept: Sequence[int]) -> None:
    """Keep only the `kept` heads of the `heads` heads of a layer; `output`: the output projection.

    Heads that share keys must be kept or removed together.
    """
    fused = find_part(layer, [FUSED])
    query = fused if fused is not None else find_part(layer, QUERIES)
    width = projection_width(output, 1) // heads
    if fused is not None:
        _keep(fused, [part * heads + head for part in range(3) for head in kept], width, 0)
        groups, kept_groups = heads, list(kept)
    else:
        key, value = find_part(layer, KEYS), find_part(layer, VALUES)
        groups = projection_width(value, 0) // width
        kept_groups = sorted({head * groups // heads for head in kept})
        _keep(query, kept, projection_width(query, 0) // heads, 0)
        _keep(key, kept_groups, projection_width(key, 0) // groups, 0)
        _keep(value, kept_groups, width, 0)
    _keep(output, kept, width, 1)
    biases = getattr(layer, BIASES, None)
    if biases is not None:
        biases.weight = nn.Parameter(biases.weight.detach()[:, list(kept)].clone())
        biases.embedding_dim = len(kept)
    counts = [(HEAD_COUNTS, heads, len(kept)), (GROUP_COUNTS, groups, len(kept_groups))]
    counts.append((WIDTHS, heads * width, len(kept) * width))
    for names, before, after in counts:
        for name in names:
            if getattr(layer, name, None) == before:
                setattr(layer, name, after)


@torch.no_grad()
def _keep(projection: Any, parts: Sequence[int], width: int, side: int) -> None:
    """Keep parts of a given width of the output (side 0) or the input (side 1) of a projection."""
    linear = isinstance(projection, nn.Linear)
    chosen = torch.cat([torch.arange(width) + part * width for part in parts])
    index = chosen.to(projection.weight.device)
    projection.weight = nn.Parameter(projection.weight.index_select(side if linear else 1 - side, index))
    if side == 0 and projection.bias is not None:
        projection.bias = nn.Parameter(projection.bias[index])
    if linear:
        setattr(projection, "out_features" if side == 0 else "in_features", len(chosen))
    elif side == 0:
        projection.nf = len(chosen)
    else:
        projection.nx = len(chosen)


def give_own_biases(model: nn.Module) -> None:
    """Let each layer of T5 compute its own position biases, so that layers may have different heads.

    T5 computes position biases in the first layer only, and passes them on. The outputs do not change.
    """
    owner: Any = None
    for name, layer in model.named_modules():
        if not hasattr(layer, HAS_BIASES) or vars(layer).get(COMPUTES_BIASES):
            continue
        if getattr(layer, HAS_BIASES):
            owner = layer
        elif name.endswith("SelfAttention"):
            setattr(layer, BIASES, copy.deepcopy(getattr(owner, BIASES)))
            setattr(layer, HAS_BIASES, True)
        setattr(layer, COMPUTES_BIASES, True)
        layer.register_forward_pre_hook(
            lambda layer, args, kwargs: (args, kwargs | {"position_bias": None}), with_kwargs=True
        )


def shrink_model(model: nn.Module, kept: dict[str, dict[str, Any]]) -> None:
    """Remove heads of layers. By layer name, an entry holds the number of `heads`, the `kept` heads, and the name
    of the `output` projection."""
    give_own_biases(model)
    for name, entry in kept.items():
        shrink(model.get_submodule(name), model.get_submodule(entry["output"]), entry["heads"], entry["kept"])
