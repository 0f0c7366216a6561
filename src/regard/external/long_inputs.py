"""Record long inputs without storing all weights.

    with record_long(model, largest=16) as records:
        model(tokens)                                   # 8,192 tokens
    records["layers.0.self_attn"].values                # (B, H, Tq, 16), with their keys in `.keys`
    records["layers.0.self_attn"].maxima(64)            # (B, H, Tq / 64, Tk / 64), for a picture
    records["layers.0.self_attn"].rows([4095])          # (B, H, 1, Tk), computed again

Weights are computed in blocks of rows, in addition to the fused kernel. Only the largest weights of each row,
the largest weight of each square of steps, and the queries and keys are stored. Any row can be recomputed from
the queries and keys.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.hooks import AttentionHook, attach_hooks
from regard.attention.layer_record import Kind, is_transformed
from regard.attention.names import find_name
from regard.attention.records import Recorder, check_indices
from regard.errors import InputError
from regard.external.attention_call import AttentionCall
from regard.external.capture_session import BLOCK, CaptureSession
from regard.external.forward_tracker import ForwardTracker
from regard.external.modules import resolve_module
from regard.external.recording import capture, check_layers, regard_layers, warn_if_nothing_recorded

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
    """Return the largest weight of each square of (B, H, Tq, Tk); the last squares may be smaller.

    >>> max_of_squares(torch.eye(3)[None, None], 2).tolist()
    [[[[1.0, 0.0], [0.0, 1.0]]]]
    """
    return F.max_pool2d(weights.float(), side, ceil_mode=True)


class _LongSession(CaptureSession):
    """Builds a `LongRecord` from each call."""

    def __init__(self, tracker: ForwardTracker, layers: Collection[str] | None, largest: int, side: int) -> None:
        super().__init__(Recorder(), tracker, layers)
        self.largest, self.side = largest, side
        self.records: dict[str, LongRecord] = {}
        self.warned = False
        """Whether a warning about dropped earlier steps was issued."""

    @property
    def by_rows(self) -> bool:
        return True

    def record_call(self, name: str, call: AttentionCall) -> None:
        if self.tracker.start and name in self.records and not self.warned:
            self.warned = True
            warnings.warn(
                "record_long stores only the last pass of each layer, and this model continued from a cache: "
                "use record() to store all steps",
                stacklevel=2,
            )
        buffers: tuple[Tensor, Tensor, Tensor] | None = None
        for start in range(0, call.queries, BLOCK):
            weights = call.rows(slice(start, min(start + BLOCK, call.queries)))[0].detach()
            if is_transformed(weights):
                raise InputError(
                    "record_long computes rows later, after torch.func: record the model with record()"
                )
            # Allocate before the second block: small tensors between growing blocks would fragment the memory.
            values, keys, squares = buffers = buffers or self._allocate(weights, call.queries)
            top = weights.topk(values.shape[-1], dim=-1)
            rows = slice(start, start + weights.shape[2])
            values[:, :, rows], keys[:, :, rows] = top.values, top.indices + call.first_key
            maxima = max_of_squares(weights, self.side)
            squares[:, :, start // self.side : start // self.side + maxima.shape[2]] = maxima
        assert buffers is not None
        values, keys, squares = buffers
        self.records[name] = LongRecord(
            name=name,
            kind=call.kind,
            values=values,
            keys=keys,
            squares=squares,
            side=self.side,
            call=call,
        )

    def record_own(self, layer: str, queries: int, rows: Callable[..., tuple[Tensor, Tensor | None]]) -> None:
        """Record a call of one of Regard's layers; `rows` returns the weights of some queries."""
        layer = self.tracker.name_of(self.tracker.named[layer]) or layer
        steps, name = range(queries), self.next_call_name(layer) if self.tracker.active else None
        if name is not None:

            def select(chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
                return rows(steps[chosen] if isinstance(chosen, slice) else chosen)

            self.record_call(name, AttentionCall(queries=queries, rows=select))

    def _allocate(self, weights: Tensor, queries: int) -> tuple[Tensor, Tensor, Tensor]:
        """Allocate tensors for all queries: the largest weights, their keys, and the squares."""
        batch, heads, _, keys = weights.shape
        largest = (batch, heads, queries, min(self.largest, keys))
        squares = (batch, heads, -(-queries // self.side), -(-keys // self.side))
        tensors = weights.new_empty(largest), weights.new_empty(largest, dtype=torch.int32)
        return *tensors, weights.new_empty(squares, dtype=torch.float32)


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
