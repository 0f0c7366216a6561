"""Attention maps of an external model, with labels of their steps: tokens, image patches, or a user's labels.

A map of a long input shows, for each square of steps, the largest weight.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.attention.records import describe_left_out
from regard.external.adapters import Adapter, CustomModel, PreparedInput, call_model
from regard.external.capture_session import BLOCK
from regard.external.long_inputs import SQUARE, LongRecord, record_long
from regard.external.model_input import ImageProcessor, ModelInput, TextEncoder, as_pair
from regard.external.modules import parameter_names
from regard.external.recording import record
from regard.viz.maps import LayerMap, LongRows, Patches
from regard.viz.records import make_layer_maps
from regard.viz.subject import Layer

START = "<start>"
"""Label of the start token of a decoder."""
LONG = 1024
"""Number of tokens above which a map shows squares of steps: all weights would take too much memory."""
MAX_LEADING_STEPS = 16
"""Largest number of steps before the patches: class token, distillation token, registers."""
MAX_SQUARES = 256
"""Largest number of squares along each side of a map; a page with a hundred heads needs this limit."""


def find_patches(config: Any, count: int) -> Patches | None:
    """Return the position and the grid of the image patches among the `count` steps of a layer.

    None if the config does not describe patches, or if the steps of the layer are not patches, as in a window.
    """
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if not size or not patch:
        return None
    (height, width), (patch_height, patch_width) = as_pair(size), as_pair(patch)
    rows, columns = height // patch_height, width // patch_width
    first = count - rows * columns - getattr(config, "num_detection_tokens", 0)
    return Patches(first, rows, columns) if 0 <= first <= MAX_LEADING_STEPS else None


def label_patches(config: Any, count: int) -> list[str] | None:
    """Return a label for each of `count` steps: `row,column` for patches, `[CLS]` or `[number]` for other steps.

    None if the steps are not patches.

    >>> from types import SimpleNamespace
    >>> label_patches(SimpleNamespace(image_size=32, patch_size=16), 5)
    ['[CLS]', '0,0', '0,1', '1,0', '1,1']
    """
    patches = find_patches(config, count)
    if patches is None:
        return None
    first, rows, columns = patches
    leading = ["[CLS]", *(f"[{number}]" for number in range(1, first))][:first]
    cells = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    return leading + cells + [f"[{number}]" for number in range(first + rows * columns, count)]


def find_layers(model: nn.Module, arguments: Any, modules: str | None) -> tuple[list[Layer], str]:
    """Run a model; returns its attention layers, and a message about unrecorded layers.

    All calls of a layer are listed as one layer.
    """
    with record(model, modules=modules) as records, torch.no_grad():
        call_model(model, arguments)
    layers = [
        Layer(name, layer.kind or "encoder", layer.weights.shape[1])
        for name, layer in records.items()
        if "#" not in name
    ]
    return layers, describe_left_out(records.left_out)


def map_layers(
    model: nn.Module, adapter: Adapter, prepared: PreparedInput, tokenizer: Any, modules: str | None
) -> dict[str, LayerMap]:
    layers = _map_layers(model, prepared, tokenizer, modules)
    return {name: _label_layer(layer, adapter, model, prepared.input) for name, layer in layers.items()}


def _map_layers(
    model: nn.Module, prepared: PreparedInput, tokenizer: Any, modules: str | None
) -> dict[str, LayerMap]:
    arguments = prepared.arguments
    tokens = arguments.get("input_ids") if isinstance(arguments, dict) else None
    if isinstance(arguments, dict) and tokens is not None and tokens.shape[1] > LONG and modules is None:
        no_cache = {"use_cache": False} if "use_cache" in parameter_names(model) else {}
        # Smaller squares would not be visible, and would take more memory.
        side = min(square_side(tokens.shape[1]), BLOCK)
        with record_long(model, largest=1, side=side) as long_records:
            call_model(model, arguments | no_cache)
        if tokenizer is None:
            return long_layer_maps(long_records)
        texts, decoder_tokens = TextEncoder(tokenizer), arguments.get("decoder_input_ids")
        target = None
        if decoder_tokens is not None:
            target = _written_labels(prepared, texts), texts.labels(decoder_tokens[0].tolist())
        return long_layer_maps(long_records, texts.labels(tokens[0].tolist()), target=target)
    with record(model, modules=modules, tokenizer=tokenizer) as records:
        call_model(model, arguments)
    layers = make_layer_maps(records, 0)
    writing = [name for name, layer in layers.items() if layer.written]
    written = _written_labels(prepared, TextEncoder(tokenizer)) if writing else None
    for name in writing:
        if written is not None and len(written) == len(layers[name].query_labels):
            # The model does not read the last token, so the record does not contain this token.
            layers[name] = dataclasses.replace(layers[name], query_labels=written)
    return layers


def _written_labels(prepared: PreparedInput, texts: TextEncoder) -> list[str] | None:
    """Return the labels of the target tokens; None unless there is exactly one target sequence."""
    truth = prepared.truth
    return texts.labels(truth[0].tolist()) if truth is not None and len(truth) == 1 else None


def _label_layer(layer: LayerMap, adapter: Adapter, model: nn.Module, model_input: ModelInput) -> LayerMap:
    """Return a layer's map, with steps labeled by the user's function or as image patches.

    The function labels the steps of an input. If there is a target, the function labels the token that is
    written at each step.
    """
    queries, keys = len(layer.query_labels), len(layer.key_labels)
    name_steps = adapter.name_steps if isinstance(adapter, CustomModel) else None
    patches = None
    if name_steps is not None:
        source = list(name_steps(model_input.value))
        labels_by_count = {len(source): source}
        if layer.kind == "cross" or (model_input.target is not None and layer.kind == "decoder"):
            target = [] if model_input.target is None else list(name_steps(model_input.target))
            matches = len(target) == queries
            key_labels = labels_by_count if layer.kind == "cross" else {len(target): [START, *target[:-1]]}
            return dataclasses.replace(
                layer,
                query_labels=target if matches else layer.query_labels,
                key_labels=key_labels.get(keys) or layer.key_labels,
                written=matches,
            )
    elif isinstance(getattr(adapter, "inputs", None), ImageProcessor):
        labels_by_count = {count: label_patches(model.config, count) or [] for count in (queries, keys)}
        patches = find_patches(model.config, keys)
    else:
        return layer
    return dataclasses.replace(
        layer,
        query_labels=labels_by_count.get(queries) or layer.query_labels,
        key_labels=labels_by_count.get(keys) or layer.key_labels,
        patches=patches,
    )


def long_layer_maps(
    records: Mapping[str, LongRecord],
    tokens: Sequence[str] | None = None,
    *,
    target: tuple[Sequence[str] | None, Sequence[str]] | None = None,
    input: int = 0,
    most: int = MAX_SQUARES,
) -> dict[str, LayerMap]:
    """Return maps of a long input, by layer: the largest weight of each square of steps.

    The side of the squares is the smallest (16, 32, 64, ...) with at most `most` along the longer side of the
    map.
    `tokens` label the first step of each square. `target`, for an encoder-decoder: the tokens that it writes, and
    the tokens that its decoder reads.
    """
    maps = {}
    for name, long_record in records.items():
        side = square_side(max(long_record.squares.shape[-2:]) * long_record.side, most, long_record.side)
        weights = long_record.maxima(side)[input].cpu().numpy()
        _, queries, keys = weights.shape
        query_tokens, key_tokens = tokens, tokens
        if target is not None and long_record.kind in ("cross", "decoder"):
            query_tokens, key_tokens = target[0], tokens if long_record.kind == "cross" else target[1]
        maps[name] = LayerMap(
            name=name,
            title=f"{name}, the largest weight in each square of {side} by {side} steps",
            weights=weights,
            query_labels=_square_labels(queries, side, query_tokens),
            key_labels=_square_labels(keys, side, key_tokens),
            written=query_tokens is not None and query_tokens is not tokens,
            kind_override=long_record.kind,
            rows=_single_rows(long_record, side, query_tokens, key_tokens, input),
        )
    return maps


def _single_rows(
    record: LongRecord, side: int, queries: Sequence[str] | None, keys: Sequence[str] | None, input: int
) -> LongRows:
    """Return a function that computes exact rows of a record; the record stays in memory."""

    def labels(count: int, tokens: Sequence[str] | None) -> list[str]:
        return [*(tokens or ()), *map(str, range(len(tokens or ()), count))][:count]

    def row(step: int) -> np.ndarray:
        weights: np.ndarray = record.rows([step])[input, :, 0].float().cpu().numpy()
        return weights

    return LongRows(side, row, labels(record.call.queries, queries), labels(record.rows([0]).shape[-1], keys))


def square_side(steps: int, most: int = MAX_SQUARES, least: int = SQUARE) -> int:
    """Return the smallest side (16, 32, 64, ...) with which at most `most` squares cover the steps.

    >>> square_side(8192)
    32
    """
    side = least
    while steps > most * side:
        side *= 2
    return side


def _square_labels(count: int, side: int, tokens: Sequence[str] | None) -> list[str]:
    starts = range(0, count * side, side)
    return [f"{start} {tokens[start]}" if tokens and start < len(tokens) else str(start) for start in starts]
