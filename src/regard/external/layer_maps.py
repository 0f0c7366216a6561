"""Attention maps of an external model, with labels of their steps: tokens, image patches, or a user's labels.

A map of a long input shows, for each square of steps, the largest weight.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.activations.capture_session import BLOCK, AttentionCall, CaptureSession
from regard.activations.forward_tracker import ForwardTracker
from regard.activations.modules import parameter_names, resolve_module
from regard.activations.weights import capture, check_layers, record_weights, regard_layers, warn_if_nothing_recorded
from regard.arguments import public
from regard.attention.layer import AttentionHook, attach_hooks
from regard.attention.names import find_name
from regard.attention.records import Kind, Recorder, check_indices, describe_left_out, is_transformed
from regard.errors import InputError
from regard.external.adapters import Adapter, CustomModel, PreparedInput, call_model
from regard.external.model_input import ImageProcessor, ModelInput, TextEncoder, as_pair
from regard.viz.attention_map import make_layer_maps
from regard.viz.maps import LayerMap, LongRows, Patches
from regard.viz.subject import Layer

# Record long inputs without storing all weights.
#
#     with record_long(model, largest=16) as records:
#         model(tokens)                                   # 8,192 tokens
#     records["layers.0.self_attn"].values                # (B, H, Tq, 16), with their keys in `.keys`
#     records["layers.0.self_attn"].maxima(64)            # (B, H, Tq / 64, Tk / 64), for a picture
#     records["layers.0.self_attn"].rows([4095])          # (B, H, 1, Tk), computed again
#
# Weights are computed in blocks of rows, in addition to the fused kernel. Only the largest weights of each row,
# the largest weight of each square of steps, and the queries and keys are stored. Any row can be recomputed from
# the queries and keys.

SQUARE = 16
"""Number of steps along the side of the smallest square."""
SIDES = (16, 32, 64)
"""Possible sides: they divide the blocks of 64 rows in which weights are computed."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LongRecord:
    """The attention of one layer to one long input."""

    name: str
    kind: Kind | None
    values: Tensor
    """(B, H, Tq, k), the k largest weights of each row, exact and in descending order."""
    keys: Tensor
    """(B, H, Tq, k), the steps of their keys."""
    squares: Tensor
    """(B, H, Tq / side, Tk / side), the largest weight in each square of `side` by `side` steps."""
    side: int
    call: AttentionCall

    def __repr__(self) -> str:
        batch, heads, queries, _ = self.values.shape
        return f"<LongRecord: {self.name}, {batch} inputs, {heads} heads, {queries} queries>"

    def maxima(self, side: int) -> Tensor:
        """Return the largest weight of each square of `side` steps: (B, H, Tq / side, Tk / side).

        Raises `InputError` for a side that is not a multiple of the recorded side.
        """
        own = self.side
        if side < own or side % own:
            raise InputError(f"side={side} is not a multiple of {own}: choose {own}, {2 * own}, {4 * own}, ...")
        return max_of_squares(self.squares, side // own)

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return the weights (B, H, rows, Tk) of some queries, computed again.

        Raises `InputError` for a query out of range.
        """
        check_indices("rows", queries, self.call.queries)
        with torch.no_grad():
            return self.call.rows(list(queries))[0].detach()


def max_of_squares(weights: Tensor, side: int) -> Tensor:
    """Return the largest weight of each square of (B, H, Tq, Tk); the last squares may be smaller."""
    return F.max_pool2d(weights.float(), side, ceil_mode=True)


class _LongSession(CaptureSession):
    """Builds a `LongRecord` from each call."""

    def __init__(self, tracker: ForwardTracker, layers: Collection[str] | None, largest: int, side: int) -> None:
        super().__init__(Recorder(), tracker, layers)
        self.largest, self.side = largest, side
        self.records: dict[str, LongRecord] = {}

    @property
    def by_rows(self) -> bool:
        return True

    def record_call(self, name: str, call: AttentionCall) -> None:
        if self.tracker.start and name in self.records:
            self.warn_once(
                "cache",
                "record_long stores only the last pass of each layer, and this model continued from a cache: "
                "use record() to store all steps",
            )
        buffers: tuple[Tensor, Tensor, Tensor] | None = None
        for start in range(0, call.queries, BLOCK):
            weights = call.rows(slice(start, min(start + BLOCK, call.queries)))[0].detach()
            if is_transformed(weights):
                raise InputError("record_long computes rows later, after torch.func: record the model with record()")
            # Allocate before the second block: small tensors between growing blocks would fragment the memory.
            if buffers is None:
                batch, heads, _, count = weights.shape
                largest = (batch, heads, call.queries, min(self.largest, count))
                sides = (-(-call.queries // self.side), -(-count // self.side))
                tensors = weights.new_empty(largest), weights.new_empty(largest, dtype=torch.int32)
                buffers = *tensors, weights.new_empty(batch, heads, *sides, dtype=torch.float32)
            values, keys, squares = buffers
            top = weights.topk(values.shape[-1], dim=-1)
            rows = slice(start, start + weights.shape[2])
            values[:, :, rows], keys[:, :, rows] = top.values, top.indices + call.first_key
            maxima = max_of_squares(weights, self.side)
            squares[:, :, start // self.side : start // self.side + maxima.shape[2]] = maxima
        assert buffers is not None
        values, keys, squares = buffers
        self.records[name] = LongRecord(
            name=name, kind=call.kind, values=values, keys=keys, squares=squares, side=self.side, call=call
        )

    def record_own(self, layer: str, queries: int, rows: Callable[..., tuple[Tensor, Tensor | None]]) -> None:
        """Record a call of one of Regard's layers; `rows` returns the weights of some queries."""
        layer = self.tracker.name_of(self.tracker.named[layer]) or layer
        steps, name = range(queries), self.next_call_name(layer) if self.tracker.active else None
        if name is not None:

            def select(chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
                return rows(steps[chosen] if isinstance(chosen, slice) else chosen)

            self.record_call(name, AttentionCall(queries=queries, rows=select))


@public
class LongRecords(Mapping[str, LongRecord]):
    """Records by layer name, added while the model runs; `.layers` may be left out of a name."""

    def __init__(self, records: dict[str, LongRecord]) -> None:
        self._records = records

    def __getitem__(self, name: str) -> LongRecord:
        known = find_name(name, self._records)
        if known is None:
            raise KeyError(name)
        return self._records[known]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


@public
@contextmanager
def record_long(
    model: Any, *, largest: int = 16, side: int = 2 * SQUARE, layers: Collection[str] | None = None
) -> Iterator[LongRecords]:
    """Record a model over an input whose weights do not fit in memory; yields `LongRecord` by layer name.

    `largest`: number of weights to store for each row. `side`: steps along the side of the smallest squares, 16,
    32 or 64. Captures the same layers as `record`. Raises `InputError` for an unknown layer or side, or for
    `largest` below 1.

        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        >>> with record_long(layer, largest=4) as records:
        ...     _ = layer(torch.zeros(1, 100, 8))
        >>> records["self_attn"].values.shape, records["self_attn"].squares.shape
        (torch.Size([1, 2, 100, 4]), torch.Size([1, 2, 4, 4]))
    """
    model, _ = resolve_module(model)
    if side not in SIDES:
        raise InputError(f"side={side} is unknown: choose {', '.join(map(str, SIDES))}")
    tracker = ForwardTracker(model)
    session = _LongSession(tracker, layers, largest, side)
    own = {
        layer: dataclasses.replace(layer.hook or AttentionHook(), by_rows=partial(session.record_own, name))
        for name, layer in reversed(regard_layers(tracker).items())
    }
    with capture(session) as likely, attach_hooks(own):
        check_layers(layers, tracker, likely)
        yield LongRecords(session.records)
    warn_if_nothing_recorded(model, session, set(session.records))


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
    with record_weights(model, modules=modules) as records, torch.no_grad():
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
    arguments = prepared.arguments
    tokens = arguments.get("input_ids") if isinstance(arguments, dict) else None
    if isinstance(arguments, dict) and tokens is not None and tokens.shape[1] > LONG and modules is None:
        layers = _map_long_input(model, prepared, arguments, tokenizer)
    else:
        with record_weights(model, modules=modules, tokenizer=tokenizer) as records:
            call_model(model, arguments)
        layers = make_layer_maps(records, 0)
        writing = [name for name, layer in layers.items() if layer.written]
        written = _written_labels(prepared, TextEncoder(tokenizer)) if writing else None
        for name in writing:
            if written is not None and len(written) == len(layers[name].query_labels):
                # The model does not read the last token, so the record does not contain this token.
                layers[name] = dataclasses.replace(layers[name], query_labels=written)
    return {name: _label_layer(layer, adapter, model, prepared.input) for name, layer in layers.items()}


def _written_labels(prepared: PreparedInput, texts: TextEncoder) -> list[str] | None:
    """Return the labels of the target tokens; None unless there is exactly one target sequence."""
    truth = prepared.truth
    return texts.labels(truth[0].tolist()) if truth is not None and len(truth) == 1 else None


def _label_layer(layer: LayerMap, adapter: Adapter, model: nn.Module, model_input: ModelInput) -> LayerMap:
    """Return a layer's map, with steps labeled by the user's function or as image patches.

    The function labels the steps of an input, or of a target: the token that is written at each step.
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
    elif isinstance(adapter.encoder, ImageProcessor):
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


def _map_long_input(
    model: nn.Module, prepared: PreparedInput, arguments: dict[str, Any], tokenizer: Any
) -> dict[str, LayerMap]:
    """Return maps of a long input, by layer: the largest weight of each square of steps.

    The side of the squares is the smallest (16, 32, 64, ...) with at most `MAX_SQUARES` along the longer side of
    the map. Labels are those of the first step of each square.
    """
    no_cache = {"use_cache": False} if "use_cache" in parameter_names(model) else {}
    # Smaller squares would not be visible, and would take more memory.
    side = min(square_side(arguments["input_ids"].shape[1]), BLOCK)
    with record_long(model, largest=1, side=side) as records:
        call_model(model, arguments | no_cache)
    texts = None if tokenizer is None else TextEncoder(tokenizer)
    read, decoder_tokens = arguments["input_ids"][0], arguments.get("decoder_input_ids")
    tokens = None if texts is None else texts.labels(read.tolist())
    maps = {}
    for name, record in records.items():
        side = square_side(max(record.squares.shape[-2:]) * record.side, record.side)
        weights = record.maxima(side)[0].cpu().numpy()
        query_tokens, key_tokens = tokens, tokens
        if texts is not None and decoder_tokens is not None and record.kind in ("cross", "decoder"):
            query_tokens = _written_labels(prepared, texts)
            key_tokens = tokens if record.kind == "cross" else texts.labels(decoder_tokens[0].tolist())
        rows = LongRows(
            side,
            lambda step, record=record: record.rows([step])[0, :, 0].float().cpu().numpy(),  # type: ignore[misc]
            _step_labels(record.call.queries, query_tokens),
            _step_labels(record.rows([0]).shape[-1], key_tokens),
        )
        maps[name] = LayerMap(
            name=name,
            title=f"{name}, the largest weight in each square of {side} by {side} steps",
            weights=weights,
            query_labels=_square_labels(weights.shape[1], side, query_tokens),
            key_labels=_square_labels(weights.shape[2], side, key_tokens),
            written=query_tokens is not None and query_tokens is not tokens,
            kind_override=record.kind,
            rows=rows,
        )
    return maps


def _step_labels(count: int, tokens: Sequence[str] | None) -> list[str]:
    return [*(tokens or ()), *map(str, range(len(tokens or ()), count))][:count]


def square_side(steps: int, least: int = SQUARE) -> int:
    """Return the smallest side (16, 32, 64, ...) with which at most `MAX_SQUARES` squares cover the steps.

    >>> square_side(8192)
    32
    """
    side = least
    while steps > MAX_SQUARES * side:
        side *= 2
    return side


def _square_labels(count: int, side: int, tokens: Sequence[str] | None) -> list[str]:
    starts = range(0, count * side, side)
    return [f"{start} {tokens[start]}" if tokens and start < len(tokens) else str(start) for start in starts]
