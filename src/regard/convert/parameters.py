"""Names, order and rows of a Transformer's parameters in Regard and in other programs.

A program has a table of names (`NameTable`). Marian's positional encoding has all sines before all cosines;
Regard's alternates sines and cosines. Every matrix that reads or writes the states is therefore permuted along
the width.

Letters: D: width of the states; V, V': number of symbols in the vocabularies of the run and of the program.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.data.vocabulary import BOS, EOS

Loaded = TypeVar("Loaded")

MISSING_LOGIT = -100.0
"""Logit of a symbol that the other program does not have: its probability is zero in float32."""
READERS = ("query", "key", "value", "inner")
"""Regard's modules in whose weight each column belongs to a dimension of the states."""
WRITERS = ("output", "outer", "norm")
"""Regard's modules in whose weight and bias each row belongs to a dimension of the states."""


class NameTable(NamedTuple):
    """Names of a Transformer's modules. The entries of all tables have the same order."""

    attention: tuple[str, ...]
    """Projections of queries, keys, values and contexts."""
    encoder: tuple[tuple[str, str], ...]
    """Attention of an encoder layer, and its normalization layer."""
    decoder: tuple[tuple[str, str], ...]
    """Self-attention and cross attention of a decoder layer, each with its normalization."""
    feed_forward: tuple[str, ...]
    """Both matrices of the feed-forward layer, and its normalization layer."""
    final: str = "layer_norm"
    """Normalization at the end of a stack."""
    prefix: str = ""
    """Beginning of every name."""

    def modules(self, flags: Mapping[str, Any]) -> Iterator[str]:
        """Yield the names of all modules in the layers of a Transformer with these flags."""
        for side, parts in (("encoder", self.encoder), ("decoder", self.decoder)):
            for number in range(flags[f"{side[:3]}_layers"]):
                layer = f"{self.prefix}{side}.layers.{number}"
                for attention, norm in parts:
                    yield from (f"{layer}.{attention}.{projection}" for projection in self.attention)
                    yield f"{layer}.{norm}"
                yield from (f"{layer}.{part}" for part in self.feed_forward)
            if flags["pre_norm"]:
                yield f"{self.prefix}{side}.{self.final}"


OURS = NameTable(
    attention=("query", "key", "value", "output"),
    encoder=(("self_attention", "attention_residual.norm"),),
    decoder=(("self_attention", "self_residual.norm"), ("cross", "cross_residual.norm")),
    feed_forward=("feed_forward.inner", "feed_forward.outer", "feed_forward_residual.norm"),
    final="norm",
)
MARIAN = NameTable(
    attention=("q_proj", "k_proj", "v_proj", "out_proj"),
    encoder=(("self_attn", "self_attn_layer_norm"),),
    decoder=(("self_attn", "self_attn_layer_norm"), ("encoder_attn", "encoder_attn_layer_norm")),
    feed_forward=("fc1", "fc2", "final_layer_norm"),
    prefix="model.",
)
"""Marian (Junczys-Dowmunt et al. 2018) as in Hugging Face."""


def module_names(table: NameTable, flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the program's name of each module of a Transformer's layers, by Regard's name.

    `flags`: `enc_layers`, `dec_layers` and `pre_norm`; with `pre_norm`, each stack ends in a
    normalization.

    >>> names = module_names(MARIAN, {"enc_layers": 1, "dec_layers": 0, "pre_norm": False})
    >>> names["encoder.layers.0.self_attention.query"]
    'model.encoder.layers.0.self_attn.q_proj'
    """
    return dict(zip(OURS.modules(flags), table.modules(flags), strict=True))


def to_external(state: Mapping[str, Tensor], names: Mapping[str, str], order: Tensor) -> dict[str, Tensor]:
    """Return a run's parameters by external names, with the width permuted by `order` (D,).

    Missing biases are zeros.
    """
    external = {}
    for ours, theirs in names.items():
        weight = state[f"{ours}.weight"]
        external[f"{theirs}.weight"] = _permute(ours, weight, order)
        external[f"{theirs}.bias"] = _permute(ours, state.get(f"{ours}.bias", torch.zeros(len(weight))), order)
    return external


def from_external(
    state: Mapping[str, Tensor], names: Mapping[str, str], order: Tensor | None = None
) -> dict[str, Tensor]:
    """Return external parameters by Regard's names, undoing the permutation `order` (D,) of the width.

    Raises `KeyError` for a missing parameter.
    """
    inverse = None if order is None else order.argsort()
    return {
        f"{ours}.{kind}": _permute(ours, state[f"{theirs}.{kind}"], inverse)
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }


def _permute(ours: str, values: Tensor, order: Tensor | None) -> Tensor:
    """Permute the width of a weight (rows, columns), of a bias or of a norm's parameter (D,)."""
    if order is None:
        return values
    part = ours.rpartition(".")[2]
    values = values[:, order] if part in READERS and values.dim() == 2 else values
    return values[order] if part in WRITERS else values


def get_sines_first_order(width: int) -> Tensor:
    """Return the permutation of a width that puts all sines (even indices) before all cosines (odd indices).

    >>> get_sines_first_order(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


Rows = Sequence[int | None]
"""The program's index of each symbol of a run's vocabulary; None if the program does not have the symbol."""


class IndexMap:
    """Map between the token indices in a run's vocabulary and the token indices in another program.

    If the other program has one symbol for the start and the end of a sequence, the start symbol must never be
    generated. The logit of the start symbol is then lowered by `MISSING_LOGIT`.
    """

    def __init__(self, rows: Rows) -> None:
        # If a program has no padding symbol, the start symbol pads its batches.
        self.there = torch.tensor([rows[BOS] if row is None else row for row in rows])
        """(V,) int64: the program's index of each symbol."""
        self._here = {row: index for index, row in enumerate(rows) if row is not None}
        self._missing = torch.tensor([row is None for row in rows])
        self._bias = start_symbol_bias(rows)

    def back(self, theirs: Sequence[int]) -> list[int]:
        return [self._here[index] for index in theirs]

    def answers(self, theirs: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the program's answers as the run's indices, up to but not including the end symbol."""
        rows = [self.back(row) for row in theirs]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]

    def logits(self, theirs: Tensor) -> Tensor:
        """Return the program's logits (..., V') in the order of the run's indices, (..., V)."""
        return theirs[..., self.there].masked_fill(self._missing, MISSING_LOGIT) + self._bias


def start_symbol_bias(rows: Rows) -> Tensor:
    """Return a bias (V,) of the logits: `MISSING_LOGIT` for the start symbol if it is the end symbol, else 0."""
    bias = torch.zeros(len(rows))
    if rows[BOS] == rows[EOS]:
        bias[BOS] = MISSING_LOGIT
    return bias


def select_rows(theirs: Tensor, rows: Rows, missing: float = 0.0) -> Tensor:
    """Return rows (V', ...) of the program's symbols in the run's order, (V, ...); missing symbols get
    `missing`."""
    indices = torch.tensor([0 if row is None else row for row in rows])
    selected = theirs[indices].clone()
    selected[torch.tensor([row is None for row in rows])] = missing
    return selected


class OuterWeights(NamedTuple):
    """Embedding and output matrices (V', D) of a model, with rows in the order of the program's indices."""

    source: Tensor
    target: Tensor
    output: Tensor


def convert_outer_weights(
    outer: OuterWeights, rows: tuple[Rows, Rows], flags: Mapping[str, Any], order: Tensor | None = None
) -> dict[str, Tensor]:
    """Return embeddings and output layer (V, D) by Regard's names, undoing the permutation `order` (D,).

    Matrices that are shared according to the flags `joint` and `tied` are returned only once.
    """
    matrices = {"target_embedding.weight": select_rows(outer.target, rows[1])}
    if not flags["joint"]:
        matrices["source_embedding.weight"] = select_rows(outer.source, rows[0])
    if not flags["tied"]:
        matrices["output.weight"] = select_rows(outer.output, rows[1])
    inverse = slice(None) if order is None else order.argsort()
    return {name: matrix[:, inverse] for name, matrix in matrices.items()}
