"""Attention layers with fewer heads: rows of the projections go, and columns of the one after them.

This file knows of PyTorch only: a copy of it lies in the folder of a pruned model, for transformers to run.
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
"""Queries, keys and values side by side, in that order, as GPT-2 has them."""
COUNTS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads")
GROUPS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
BIASES, OWNS_BIASES, ALONE = "relative_attention_bias", "has_relative_attention_bias", "biases_are_its_own"
"""Of T5: the embedding of distances, a number a head; whether a layer has one; whether it uses no other."""
WIDTHS = ("all_head_size", "inner_dim", "embed_dim", "split_size")


def find_part(layer: nn.Module, names: Sequence[str]) -> Any:
    """Return the first module of a layer with one of these names; None where there is none."""
    found = dict(layer.named_modules())
    return next((found[name] for name in names if name in found and hasattr(found[name], "weight")), None)


def projection_width(projection: nn.Module, side: int) -> int:
    """Return how wide what a projection returns (0) or takes (1) is; GPT-2 keeps matrices the other way round."""
    weight: Any = projection.weight
    return int(weight.shape[side if isinstance(projection, nn.Linear) else 1 - side])


def shrink(layer: nn.Module, output: nn.Module, heads: int, kept: Sequence[int]) -> None:
    """Leave of `heads` heads of a layer those that are `kept`; `output`: the projection after them.

    Where heads share keys, all that share some go or stay together.
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
    counts = [(COUNTS, heads, len(kept)), (GROUPS, groups, len(kept_groups))]
    counts.append((WIDTHS, heads * width, len(kept) * width))
    for names, before, after in counts:
        for name in names:
            if getattr(layer, name, None) == before:
                setattr(layer, name, after)


@torch.no_grad()
def _keep(projection: Any, parts: Sequence[int], width: int, side: int) -> None:
    """Keep parts, so wide, of what a projection returns (0) or takes (1)."""
    linear = isinstance(projection, nn.Linear)
    chosen = torch.cat([torch.arange(width) + part * width for part in parts])
    place = chosen.to(projection.weight.device)
    projection.weight = nn.Parameter(projection.weight.index_select(side if linear else 1 - side, place))
    if side == 0 and projection.bias is not None:
        projection.bias = nn.Parameter(projection.bias[place])
    if linear:
        setattr(projection, "out_features" if side == 0 else "in_features", len(chosen))
    elif side == 0:
        projection.nf = len(chosen)
    else:
        projection.nx = len(chosen)


def give_own_biases(model: nn.Module) -> None:
    """Let each layer of T5 work its biases out itself; otherwise those of the first serve all that follow.

    From then on, each may have heads of its own. The model answers as before.
    """
    owner: Any = None
    for name, layer in model.named_modules():
        if not hasattr(layer, OWNS_BIASES) or vars(layer).get(ALONE):
            continue
        if getattr(layer, OWNS_BIASES):
            owner = layer
        elif name.endswith("SelfAttention"):
            setattr(layer, BIASES, copy.deepcopy(getattr(owner, BIASES)))
            setattr(layer, OWNS_BIASES, True)
        setattr(layer, ALONE, True)
        layer.register_forward_pre_hook(_without_biases, with_kwargs=True)


def _without_biases(layer: nn.Module, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return given, named | {"position_bias": None}


def shrink_model(model: nn.Module, kept: dict[str, dict[str, Any]]) -> None:
    """Leave in each layer of a model, by its name, the heads `kept` of `heads`, before projection `output`."""
    give_own_biases(model)
    for name, said in kept.items():
        shrink(model.get_submodule(name), model.get_submodule(said["output"]), said["heads"], said["kept"])
