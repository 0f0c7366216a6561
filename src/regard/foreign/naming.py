"""Names of steps that no tokenizer has: of patches of a picture, and of what a model of one's own reads."""

import dataclasses
from typing import Any

from torch import nn

from regard.foreign.families import Asked, Family
from regard.foreign.pictures import Pictures, patch_labels
from regard.inspection import LayerMap


def named_layer(layer: LayerMap, family: Family, model: nn.Module, asked: Asked) -> LayerMap:
    """Return a layer with the names of patches, or those that a function of one's own gives."""
    queries, keys = len(layer.query_labels), len(layer.key_labels)
    find: Any = getattr(family, "names", None)
    if find is not None:
        own = list(find(asked.given))
        by_count = {len(own): own}
    elif isinstance(getattr(family, "inputs", None), Pictures):
        by_count = {each: patch_labels(model.config, each) or [] for each in (queries, keys)}
    else:
        return layer
    return dataclasses.replace(
        layer,
        query_labels=by_count.get(queries) or layer.query_labels,
        key_labels=by_count.get(keys) or layer.key_labels,
    )
