"""Mapping of a Transformer's parameters between Regard and other programs.

Other programs use other names. Marian's positional encoding has all sines before all cosines, Regard's alternates
them, so every matrix that reads or writes the states is permuted along the width.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.data import BOS, EOS
from regard.io.reading import check_file, damaged_file

Loaded = TypeVar("Loaded")

MISSING_LOGIT = -100.0
"""Logit of a symbol that the other program lacks: its probability is zero in float32."""


class ModuleMapping(NamedTuple):
    """Names of a Transformer's module in another program and in Regard. Regard's may lack the bias."""

    theirs: str
    ours: str
    reads: bool = False
    """Whether the columns of its weight run over the width of the states."""
    writes: bool = False
    """Whether the rows of its weight, and its bias, run over the width of the states."""


Rows = Sequence[int | None]
"""The program's index of each symbol of a run's vocabulary; None if the program lacks the symbol."""


class IndexMap:
    """Map between token indices of a run's vocabulary and those of another program.

    If start and end of a sequence are one symbol in the other program, the start symbol must never be written.
    Its logit is then lowered by `MISSING_LOGIT`.
    """

    def __init__(self, rows: Rows) -> None:
        # Programs without a padding symbol pad with the start symbol.
        self.there = torch.tensor([rows[BOS] if row is None else row for row in rows])
        """(V,) int64: the program's index of each symbol."""
        self._here = {row: index for index, row in enumerate(rows) if row is not None}
        self._missing = torch.tensor([row is None for row in rows])
        self._bias = start_symbol_bias(rows)

    def back(self, theirs: Sequence[int]) -> list[int]:
        """Return the run's indices of some of the program's."""
        return [self._here[index] for index in theirs]

    def logits(self, theirs: Tensor) -> Tensor:
        """Reorder the program's logits (..., V') by the run's indices, (..., V)."""
        return theirs[..., self.there].masked_fill(self._missing, MISSING_LOGIT) + self._bias


def start_symbol_bias(rows: Rows) -> Tensor:
    """Return a bias (V,) of the logits: `MISSING_LOGIT` for the start symbol if it equals the end symbol, else
    0."""
    bias = torch.zeros(len(rows))
    if rows[BOS] == rows[EOS]:
        bias[BOS] = MISSING_LOGIT
    return bias


def get_sines_first_order(width: int) -> Tensor:
    """Return the permutation of a width that puts all sines (even indices) before all cosines (odd indices)."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def to_external(
    state: Mapping[str, Tensor], modules: Iterable[ModuleMapping], order: Tensor
) -> dict[str, Tensor]:
    """Return a run's parameters by external names, with the width permuted by `order`; missing biases are
    zeros."""
    external = {}
    for module in modules:
        weight = state[f"{module.ours}.weight"]
        bias = state.get(f"{module.ours}.bias", torch.zeros(len(weight)))
        external[f"{module.theirs}.weight"] = _permute(weight, order, reads=module.reads, writes=module.writes)
        external[f"{module.theirs}.bias"] = _permute(bias, order, writes=module.writes)
    return external


def from_external(
    state: Mapping[str, Tensor], modules: Iterable[ModuleMapping], order: Tensor
) -> dict[str, Tensor]:
    """Return external parameters by Regard's names, undoing the permutation `order` of the width.

    Raises `KeyError` for a missing parameter.
    """
    inverse, parameters = order.argsort(), {}
    for module in modules:
        weight, bias = state[f"{module.theirs}.weight"], state[f"{module.theirs}.bias"]
        parameters[f"{module.ours}.weight"] = _permute(weight, inverse, reads=module.reads, writes=module.writes)
        parameters[f"{module.ours}.bias"] = _permute(bias, inverse, writes=module.writes)
    return parameters


def _permute(values: Tensor, order: Tensor, *, reads: bool = False, writes: bool = False) -> Tensor:
    values = values[:, order] if reads else values
    return values[order] if writes else values


def select_rows(theirs: Tensor, rows: Rows, missing: float = 0.0) -> Tensor:
    """Reorder rows (V', ...) of the program's symbols by the run's, (V, ...); missing symbols get `missing`."""
    indices = torch.tensor([0 if row is None else row for row in rows])
    selected = theirs[indices].clone()
    selected[torch.tensor([row is None for row in rows])] = missing
    return selected


def marian_modules(enc_layers: int, dec_layers: int) -> Iterator[ModuleMapping]:
    """Yield all modules of a Marian model (Junczys-Dowmunt et al. 2018) except embeddings and output layer.

    The names are those of Hugging Face.
    """
    for side, layers in (("encoder", enc_layers), ("decoder", dec_layers)):
        for number in range(layers):
            theirs, ours = f"model.{side}.layers.{number}", f"{side}.layers.{number}"
            first = "attention_residual" if side == "encoder" else "self_residual"
            yield from _attention(f"{theirs}.self_attn", f"{ours}.self_attention", f"{ours}.{first}")
            if side == "decoder":
                yield from _attention(f"{theirs}.encoder_attn", f"{ours}.cross", f"{ours}.cross_residual")
            yield ModuleMapping(f"{theirs}.fc1", f"{ours}.feed_forward.inner", reads=True)
            yield ModuleMapping(f"{theirs}.fc2", f"{ours}.feed_forward.outer", writes=True)
            yield ModuleMapping(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_residual.norm", writes=True)


def _attention(theirs: str, ours: str, residual: str) -> Iterator[ModuleMapping]:
    for name, part in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
        yield ModuleMapping(f"{theirs}.{name}", f"{ours}.{part}", reads=True)
    yield ModuleMapping(f"{theirs}.out_proj", f"{ours}.output", writes=True)
    yield ModuleMapping(f"{theirs}_layer_norm", f"{residual}.norm", writes=True)


def load_checkpoint(file: Path, allowed: Sequence[Any], part: Callable[[Any], Loaded], mend: str) -> Loaded:
    """Load another program's checkpoint without running its code, and return `part` of it.

    Only tensors and the classes in `allowed` are read. Raises `InputError`, with the remedy `mend`, if the file
    holds anything else or lacks the part.
    """
    check_file(file)
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings(action="ignore"):
            return part(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:  # torch.load raises many kinds of errors for damaged files
        unsafe = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it holds {unsafe[1]}, which was not run" if unsafe else "it is damaged, or of another program"
        raise damaged_file(file, f"it cannot be read as weights ({reason})", mend) from error
