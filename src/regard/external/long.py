"""Long inputs: of every layer what can be shown and asked without ever holding a row of weights for every step.

    with record_long(model, largest=16) as records:
        model(tokens)                                   # 8,192 of them
    records["layers.0.self_attn"].largest               # values and keys, (B, H, Tq, 16)
    records["layers.0.self_attn"].maxima(64)            # (B, H, Tq / 64, Tk / 64), for a picture
    records["layers.0.self_attn"].rows([4095])          # (B, H, 1, Tk), worked out again

Weights are worked out in blocks of rows beside the fused kernel, and only this is kept of them: the largest few
of each row, the largest of each square of steps, and the queries and keys, from which any row comes again.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.hooks import AttentionHook, attach_hooks
from regard.attention.layer_record import Kind
from regard.attention.records import Recorder, check_indices, short_name
from regard.errors import InputError, check_range
from regard.external.keeper import BLOCK, Call, Keeper
from regard.external.labels import Read
from regard.external.passes import Passes
from regard.external.recording import check_layers, check_names, nothing_recorded, own_layers, watching
from regard.external.wrappers import module_of
from regard.viz import LayerMap
from regard.viz.maps import LongRows

SQUARE = 16
"""Steps along the side of the smallest square of which the largest weight is kept."""
SIDES = (16, 32, 64)
"""Those that squares may have which are worked out in blocks of 64 rows."""
SHOWN = 256
"""Squares along a side of a map at most: what a page of a hundred heads can hold."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LongRecord:
    """What one attention layer did for one long input."""

    name: str
    kind: Kind | None
    values: Tensor
    """(B, H, Tq, k), the largest weights of each row, the largest first; exact."""
    keys: Tensor
    """(B, H, Tq, k), the steps of the keys that have them."""
    squares: Tensor
    """(B, H, Tq / side, Tk / side), the largest weight in each square of `side` by `side` steps."""
    side: int
    call: Call

    def __repr__(self) -> str:
        batch, heads, queries, _ = self.values.shape
        return f"<LongRecord: {self.name}, {batch} inputs, {heads} heads, {queries} queries>"

    def maxima(self, side: int) -> Tensor:
        """Return the largest weight of each square of `side` steps: (B, H, Tq / side, Tk / side).

        Raises `InputError` for a side that is no multiple of the one that was kept.
        """
        own = self.side
        if side < own or side % own:
            raise InputError(f"side {side} is no multiple of {own}: choose {own}, {2 * own}, {4 * own}, ...")
        return largest_of_squares(self.squares, side // own)

    def rows(self, chosen: Sequence[int]) -> Tensor:
        """Return the weights (B, H, rows, Tk) of some queries, worked out again; raises `InputError` for one
        that is not there."""
        check_indices("rows", chosen, self.call.queries)
        with torch.no_grad():
            return self.call.rows(list(chosen))[0].detach()


def largest_of_squares(weights: Tensor, side: int) -> Tensor:
    """Return the largest of each square of (B, H, Tq, Tk); the last ones may be smaller."""
    return F.max_pool2d(weights.float(), side, ceil_mode=True)


class _LongKeeper(Keeper):
    """Keeps of a call what a `LongRecord` has."""

    def __init__(self, passes: Passes, layers: Collection[str] | None, largest: int, side: int) -> None:
        super().__init__(Recorder(), passes, layers, Read(None))
        self.largest, self.side = largest, side
        self.records: dict[str, LongRecord] = {}
        self.shortened = False
        """Whether a warning said that earlier steps are not kept."""

    @property
    def by_rows(self) -> bool:
        return True

    def keep(self, name: str, call: Call) -> None:
        """Work a call out in blocks of rows; one that goes on with a cache begins its record anew.

        What is kept has its place before the first block: small tensors between those of the blocks, which grow,
        would leave holes in memory that no later block fits into.
        """
        if self.passes.start and name in self.records and not self.shortened:
            self.shortened = True
            warnings.warn(
                "record_long keeps the last pass of each layer only, and this model went on with a cache:"
                " record() keeps all steps",
                stacklevel=2,
            )
        kept: tuple[Tensor, Tensor, Tensor] | None = None
        for start in range(0, call.queries, BLOCK):
            weights = call.rows(slice(start, min(start + BLOCK, call.queries)))[0].detach()
            values, keys, squares = kept = kept or self._places(weights, call.queries)
            found = weights.topk(values.shape[-1], dim=-1)
            some = slice(start, start + weights.shape[2])
            values[:, :, some], keys[:, :, some] = found.values, found.indices + call.first_key
            largest = largest_of_squares(weights, self.side)
            squares[:, :, start // self.side : start // self.side + largest.shape[2]] = largest
        assert kept is not None
        values, keys, squares = kept
        self.records[name] = LongRecord(
            name=name, kind=call.kind, values=values, keys=keys, squares=squares, side=self.side, call=call
        )

    def keep_own(self, layer: str, queries: int, rows: Callable[..., tuple[Tensor, Tensor | None]]) -> None:
        """Keep a call of a layer of Regard's, if it is wanted; `rows` returns the weights of some queries."""
        steps, name = range(queries), self.next(layer) if self.passes.here else None
        if name is not None:
            self.keep(
                name,
                Call(queries=queries, rows=lambda some: rows(steps[some] if isinstance(some, slice) else some)),
            )

    def _places(self, weights: Tensor, queries: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return room for what is kept of so many queries: values, keys, and squares."""
        batch, heads, _, keys = weights.shape
        largest = (batch, heads, queries, min(self.largest, keys))
        squares = (batch, heads, -(-queries // self.side), -(-keys // self.side))
        numbers = weights.new_empty(largest), weights.new_empty(largest, dtype=torch.int32)
        return *numbers, weights.new_empty(squares, dtype=torch.float32)


class LongRecords(Mapping[str, LongRecord]):
    """What the layers did, by name; `.layers` may be left out of it. It fills as the model runs."""

    def __init__(self, kept: dict[str, LongRecord]) -> None:
        self._kept = kept

    def __getitem__(self, name: str) -> LongRecord:
        for each, found in self._kept.items():
            if name in (each, short_name(each)):
                return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


@contextmanager
def record_long(
    model: Any, *, largest: int = 16, side: int = 2 * SQUARE, layers: Collection[str] | None = None
) -> Iterator[LongRecords]:
    """Record a model over an input so long that all its weights have no place: yields `LongRecord` by layer name.

    `largest`: how many weights of each row are kept; `side`: steps along the smallest squares, 16, 32 or 64. It
    sees what `record` sees. Raises `InputError` for a layer that the model has
    not, another side, or fewer than one weight.
    """
    model, _ = module_of(model)
    check_names(layers)
    check_range("largest", largest, 1, 2**31)
    if side not in SIDES:
        raise InputError(f"side {side} is unknown: choose {', '.join(map(str, SIDES))}")
    passes = Passes(model)
    keeper = _LongKeeper(passes, layers, largest, side)
    own = {
        layer: dataclasses.replace(layer.hook or AttentionHook(), by_rows=partial(keeper.keep_own, name))
        for name, layer in own_layers(passes).items()
    }
    with watching(model, keeper) as peers, attach_hooks(own):
        check_layers(layers, passes, peers)
        yield LongRecords(keeper.records)
    nothing_recorded(model, keeper, set(keeper.records))


def long_layers(
    records: Mapping[str, LongRecord],
    tokens: Sequence[str] | None = None,
    *,
    target: tuple[Sequence[str] | None, Sequence[str]] | None = None,
    input: int = 0,
    most: int = SHOWN,
) -> dict[str, LayerMap]:
    """Return maps of a long input, by layer: of each square of steps, the largest weight.

    A square has the least side (16, 32, 64, ...) with which there are at most `most` along the longer side.
    `tokens` name the first step of each. `target`, of an encoder-decoder: the tokens that it writes, and those
    that its decoder reads.
    """
    found = {}
    for name, record in records.items():
        side = side_of(max(record.squares.shape[-2:]) * record.side, most, record.side)
        weights = record.maxima(side)[input].cpu().numpy()
        _, queries, keys = weights.shape
        short = short_name(name)
        of_rows, of_columns = tokens, tokens
        if target is not None and record.kind in ("cross", "decoder"):
            of_rows, of_columns = target[0], tokens if record.kind == "cross" else target[1]
        found[short] = LayerMap(
            name=short,
            title=f"{short}, the largest weight of each {side} by {side} steps",
            weights=weights,
            query_labels=_squares_named(queries, side, of_rows),
            key_labels=_squares_named(keys, side, of_columns),
            written=of_rows is not None and of_rows is not tokens,
            reads=record.kind,
            rows=_long_rows(record, side, of_rows, of_columns, input),
        )
    return found


def _long_rows(
    record: LongRecord, side: int, queries: Sequence[str] | None, keys: Sequence[str] | None, input: int
) -> LongRows:
    """Return the rows of a record by themselves; what was kept of it stays with them."""

    def named(count: int, tokens: Sequence[str] | None) -> list[str]:
        return [*(tokens or ()), *map(str, range(len(tokens or ()), count))][:count]

    def row(step: int) -> np.ndarray:
        found: np.ndarray = record.rows([step])[input, :, 0].float().cpu().numpy()
        return found

    return LongRows(side, row, named(record.call.queries, queries), named(record.rows([0]).shape[-1], keys))


def side_of(steps: int, most: int = SHOWN, least: int = SQUARE) -> int:
    """Return the least side (16, 32, 64, ...) with which at most `most` squares cover so many steps."""
    side = least
    while steps > most * side:
        side *= 2
    return side


def _squares_named(count: int, side: int, tokens: Sequence[str] | None) -> list[str]:
    starts = range(0, count * side, side)
    return [f"{start} {tokens[start]}" if tokens and start < len(tokens) else str(start) for start in starts]
