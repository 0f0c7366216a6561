"""A Transformer's parameters by the names of another program, and in its order of the width.

Programs call the same matrices by other names; and as Marian's positions have all sines before all cosines, where
ours have them in turn, whatever reads or writes the width of the states is in another order there.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.data import BOS, EOS
from regard.io.reading import check_file, damaged_file

Loaded = TypeVar("Loaded")

NEVER = -100.0
"""Logit of a symbol that the other program does not have: its probability is zero in float32."""


class Renamed(NamedTuple):
    """A module of a Transformer here and there, with a weight, and a bias that may be missing here."""

    theirs: str
    ours: str
    reads: bool = False
    """Whether its weight's columns are the width of the states."""
    writes: bool = False
    """Whether its rows are, and its bias."""


Rows = Sequence[int | None]
"""For each index of a vocabulary here its index there; None where there is no such symbol there."""


class Numbering:
    """Between our indices of a vocabulary and theirs.

    Where what begins a sequence is what ends it, nothing is to be written that begins one: its logit is `NEVER`
    more.
    """

    def __init__(self, rows: Rows) -> None:
        # Where they have no padding apart, they pad with what begins a target.
        self.there = torch.tensor([rows[BOS] if row is None else row for row in rows])
        """(V,) int64: their index of each of ours."""
        self._here = {row: index for index, row in enumerate(rows) if row is not None}
        self._lacking = torch.tensor([row is None for row in rows])
        self._bias = never_begun(rows)

    def back(self, theirs: Sequence[int]) -> list[int]:
        """Return our indices of some of theirs."""
        return [self._here[each] for each in theirs]

    def logits(self, theirs: Tensor) -> Tensor:
        """Return their logits (..., V') by our indices, (..., V)."""
        return theirs[..., self.there].masked_fill(self._lacking, NEVER) + self._bias


def never_begun(rows: Rows) -> Tensor:
    """Return what is added to the logits (V,): `NEVER` to that of the begin of sequence where the end is the same
    symbol there, else nothing."""
    found = torch.zeros(len(rows))
    if rows[BOS] == rows[EOS]:
        found[BOS] = NEVER
    return found


def halves(width: int) -> Tensor:
    """Return the order of a width with all sines before all cosines, by the places of ours."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def to_theirs(state: Mapping[str, Tensor], modules: Iterable[Renamed], order: Tensor) -> dict[str, Tensor]:
    """Return parameters by their names, the width in their order; what has no bias here has zeros there."""
    found = {}
    for each in modules:
        weight = state[f"{each.ours}.weight"]
        bias = state.get(f"{each.ours}.bias", torch.zeros(len(weight)))
        found[f"{each.theirs}.weight"] = _ordered(weight, order, reads=each.reads, writes=each.writes)
        found[f"{each.theirs}.bias"] = _ordered(bias, order, writes=each.writes)
    return found


def to_ours(state: Mapping[str, Tensor], modules: Iterable[Renamed], order: Tensor) -> dict[str, Tensor]:
    """Return parameters by our names, with all biases, and the width in our order; raises `KeyError` for one that
    is missing."""
    back, found = order.argsort(), {}
    for each in modules:
        weight, bias = state[f"{each.theirs}.weight"], state[f"{each.theirs}.bias"]
        found[f"{each.ours}.weight"] = _ordered(weight, back, reads=each.reads, writes=each.writes)
        found[f"{each.ours}.bias"] = _ordered(bias, back, writes=each.writes)
    return found


def _ordered(values: Tensor, order: Tensor, *, reads: bool = False, writes: bool = False) -> Tensor:
    values = values[:, order] if reads else values
    return values[order] if writes else values


def rows_of(theirs: Tensor, rows: Rows, missing: float = 0.0) -> Tensor:
    """Return what they have for each symbol, (V', ...), for each of ours, (V, ...): `missing` where they have
    none."""
    known = torch.tensor([0 if row is None else row for row in rows])
    found = theirs[known].clone()
    found[torch.tensor([row is None for row in rows])] = missing
    return found


def load_checkpoint(file: Path, allowed: Sequence[Any], part: Callable[[Any], Loaded], mend: str) -> Loaded:
    """Return `part` of a checkpoint of another program, which is read as weights, with what is `allowed` besides;
    nothing of it is run.

    Raises `InputError`, which says `mend`, where it cannot be read so, or has no such part.
    """
    check_file(file)
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings(action="ignore"):
            return part(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:  # there is no end of what it raises for damaged files
        other = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it holds {other[1]}, which was not run" if other else "it is damaged, or another program's"
        raise damaged_file(file, f"it cannot be read as weights ({why})", mend) from error
