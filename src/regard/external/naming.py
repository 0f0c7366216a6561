"""Maps of what a model was fed, and names of their steps: of tokens, of patches of a picture, or one's own."""

import dataclasses
from typing import Any

import torch
from torch import nn

from regard.attention import short_name
from regard.attention.records import describe_left_out
from regard.external.asked import Asked
from regard.external.families import Family, Fed, called
from regard.external.keeper import BLOCK
from regard.external.long import long_layers, record_long, side_of
from regard.external.pictures import Pictures, patch_labels, patches_of
from regard.external.recording import record
from regard.external.texts import Texts, parameters_of
from regard.viz import Layer, LayerMap, layers_of_records

START = "<start>"
"""Name of what a decoder reads before its first token."""
LONG = 1024
"""Tokens above which a map is of squares of steps: all weights would have no place."""


def layers_and_left_out(model: nn.Module, given: Any, at: str | None) -> tuple[list[Layer], str]:
    """Run a model, and return its attention layers, with one line on those that are not recorded.

    All calls of a layer are one layer.
    """
    with record(model, at=at) as records, torch.no_grad():
        called(model, given)
    layers = [
        Layer(short_name(name), each.kind or "encoder", each.weights.shape[1])
        for name, each in records.items()
        if "#" not in name
    ]
    return layers, describe_left_out(records.left_out)


def layers_of_input(model: nn.Module, fed: Fed, tokenizer: Any, at: str | None) -> dict[str, LayerMap]:
    """Run a model, and return the map of each layer; of a long input, of squares of its steps."""
    given = fed.given
    tokens = given.get("input_ids") if isinstance(given, dict) else None
    if isinstance(given, dict) and tokens is not None and tokens.shape[1] > LONG and at is None:
        alone = {"use_cache": False} if "use_cache" in parameters_of(model) else {}
        side = min(side_of(tokens.shape[1]), BLOCK)  # what is smaller would not be shown, and take its room
        with record_long(model, largest=1, side=side) as kept:
            called(model, given | alone)
        if tokenizer is None:
            return long_layers(kept)
        texts, read = Texts(tokenizer), given.get("decoder_input_ids")
        labels = None if read is None else (_written(fed, texts), texts.labels(read[0].tolist()))
        return long_layers(kept, texts.labels(tokens[0].tolist()), target=labels)
    with record(model, at=at, tokenizer=tokenizer) as records:
        called(model, fed.given)
    found = layers_of_records(records, 0)
    writing = [name for name, layer in found.items() if layer.written]
    written = _written(fed, Texts(tokenizer)) if writing else None
    for name in writing:
        if written is not None and len(written) == len(found[name].query_labels):
            found[name] = dataclasses.replace(found[name], query_labels=written)  # the last token is not fed
    return found


def _written(fed: Fed, texts: Texts) -> list[str] | None:
    """Return the names of the tokens that a model is to write; None where there is no single sequence of them."""
    return texts.labels(fed.truth[0].tolist()) if fed.truth is not None and len(fed.truth) == 1 else None


def named_layer(layer: LayerMap, family: Family, model: nn.Module, asked: Asked) -> LayerMap:
    """Return a layer with the names of patches, or those that a function of one's own gives.

    The function names the steps of an input; of a target, it names what is written at each step.
    """
    queries, keys = len(layer.query_labels), len(layer.key_labels)
    find: Any = getattr(family, "names", None)
    patches = None
    if find is not None:
        own = list(find(asked.given))
        by_count = {len(own): own}
        if layer.kind == "cross" or (asked.target is not None and layer.kind == "decoder"):
            target = [] if asked.target is None else list(find(asked.target))
            fits = len(target) == queries
            read = by_count if layer.kind == "cross" else {len(target): [START, *target[:-1]]}
            return dataclasses.replace(
                layer,
                query_labels=target if fits else layer.query_labels,
                key_labels=read.get(keys) or layer.key_labels,
                written=fits,
            )
    elif isinstance(getattr(family, "inputs", None), Pictures):
        by_count = {each: patch_labels(model.config, each) or [] for each in (queries, keys)}
        patches = patches_of(model.config, keys)
    else:
        return layer
    return dataclasses.replace(
        layer,
        query_labels=by_count.get(queries) or layer.query_labels,
        key_labels=by_count.get(keys) or layer.key_labels,
        patches=patches,
    )
