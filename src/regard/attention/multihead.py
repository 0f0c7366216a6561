"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O

Optional differences from the paper: a bias in the projections, a head width other than `width / heads`, fewer
key and value heads than query heads (grouped-query attention, Ainslie et al. 2023), a different score, rotary
positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.attend import attention_forward
from regard.attention.hooks import AttentionLayer
from regard.attention.masks import as_weights_mask
from regard.attention.positions import BASE, Rotary
from regard.attention.scores import ScaledDot, Score
from regard.attention.single import check_states
from regard.errors import InputError, check_range

MAX_SIZE = 2**20
"""Largest number of heads, and largest width of a head."""


class KeyValues(NamedTuple):
    """Projected keys and values of a source, or of the steps decoded so far, cached for later queries."""

    keys: Tensor
    """(B, G, Tk, any): projected, rotated and prepared for the score."""
    values: Tensor
    """(B, G, Tk, d)."""


class MultiHeadAttention(AttentionLayer):
    """Multi-head attention for queries of width `width`.

    `head_width`: width of each head (default `width / heads`). `groups`: number of key and value heads, each
    shared by `heads / groups` query heads (default `heads`). `memory_width`: width of keys and values (default
    `width`). `score`: a class of `regard.attention.scores`, used in every head. `rotary`: rotate queries and
    keys by their positions, with the wavelengths of `rotary_base`. Raises `InputError` if the widths, heads and
    groups do not fit together.

    >>> layer = MultiHeadAttention(12, heads=3)
    >>> layer(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int | None = None,
        groups: int | None = None,
        memory_width: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        score: type[Score] = ScaledDot,
        rotary: bool = False,
        rotary_base: float = BASE,
    ) -> None:
        super().__init__()
        check_range("heads", heads, 1, MAX_SIZE)
        check_range("groups", heads if groups is None else groups, 1, heads)
        check_range("head_width", 1 if head_width is None else head_width, 1, MAX_SIZE)
        if head_width is None and width % heads:
            raise InputError(
                f"width {width} cannot be split into {heads} heads: choose a multiple of {heads}, or a head_width"
            )
        self.heads, self.groups = heads, heads if groups is None else groups
        if heads % self.groups:
            raise InputError(
                f"heads {heads} cannot share {self.groups} groups of keys: choose a number of groups that "
                f"divides {heads}"
            )
        self.head_width = width // heads if head_width is None else head_width
        memory_width = width if memory_width is None else memory_width
        self.query = nn.Linear(width, heads * self.head_width, bias=bias)
        self.key = nn.Linear(memory_width, self.groups * self.head_width, bias=bias)
        self.value = nn.Linear(memory_width, self.groups * self.head_width, bias=bias)
        self.output = nn.Linear(heads * self.head_width, width, bias=bias)
        self.score = score(self.head_width, self.head_width)
        self.rotary = Rotary(self.head_width, rotary_base) if rotary else None
        self.dropout = dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        step: int | None = None,
    ) -> Tensor:
        """Return the context (B, Tq, D) of query (B, Tq, D) over key and value (B, Tk, Dm).

        `key` defaults to the queries, and `value` defaults to the keys. `mask`: (B, Tk), (Tq, Tk), (B, Tq, Tk)
        or (B, H, Tq, Tk), True = may be attended. `causal` masks later keys. `step`, for hooks: decoding step
        of the query, or None if the queries cover the whole sequence. Raises `InputError` for incompatible
        shapes.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_states(query, key, value)
        self._check_width("query", query, self.query)
        self._check_width("key", key, self.key)
        self._check_width("value", value, self.value)
        queries = self._split(self.query(query), self.heads)
        return self._attend(queries, self.project(key, value), mask, causal=causal, step=step)

    def project(self, key: Tensor, value: Tensor | None = None, past: KeyValues | None = None) -> KeyValues:
        """Return the keys and values of states (B, T, Dm) for `attend`, appended to those of `past`."""
        offset = 0 if past is None else past.keys.shape[2]
        keys = self._split(self.key(key), self.groups)
        keys = keys if self.rotary is None else self.rotary.rotate(keys, offset)
        new = KeyValues(
            self.score.prepare(keys), self._split(self.value(key if value is None else value), self.groups)
        )
        if past is None:
            return new
        return KeyValues(torch.cat([past.keys, new.keys], dim=2), torch.cat([past.values, new.values], dim=2))

    def attend(
        self,
        query: Tensor,
        memory: KeyValues,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        step: int | None = None,
    ) -> Tensor:
        """Return the context (B, Tq, D) of query (B, Tq, D) over the result of `project`.

        With rotary positions, the queries are the last steps of the memory. `mask`, `causal` and `step` are
        those of `forward`.
        """
        self._check_width("query", query, self.query)
        queries = self._split(self.query(query), self.heads)
        return self._attend(queries, memory, mask, causal=causal, step=step)

    def _attend(
        self, queries: Tensor, memory: KeyValues, mask: Tensor | None, *, causal: bool, step: int | None = None
    ) -> Tensor:
        """Attend with projected queries (B, H, Tq, d)."""
        keys, values = memory
        if mask is not None:
            mask = as_weights_mask(mask, queries.shape[0], queries.shape[2], keys.shape[2])
        if self.rotary is not None:
            queries = self.rotary.rotate(queries, keys.shape[2] - queries.shape[2])
        context = attention_forward(
            queries,
            keys,
            values,
            mask,
            score=self.score,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            hook=self.hook,
            step=step,
        )
        output: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return output

    def _split(self, states: Tensor, heads: int) -> Tensor:
        """Split states (B, T, H d) into heads (B, H, T, d)."""
        split: Tensor = states.unflatten(-1, (heads, -1)).transpose(1, 2)
        return split

    def _check_width(self, name: str, states: Tensor, projection: nn.Linear) -> None:
        if states.shape[-1] != projection.in_features:
            raise InputError(
                f"{name} {tuple(states.shape)} does not fit: expected width {projection.in_features}"
            )


@torch.no_grad()
def keep_heads(layer: nn.Module, heads: Sequence[int]) -> None:
    """Prune all heads of a layer except `heads` (Michel et al. 2019, section 4). The outputs are those of the
    whole layer with the pruned heads ablated.

    `heads`: heads to keep, in ascending order. Raises `InputError` for a layer without projections, or if
    several heads share keys and values.

    >>> layer = MultiHeadAttention(12, heads=3)
    >>> keep_heads(layer, [0, 2])
    >>> layer.heads, layer.query.out_features
    (2, 8)
    """
    if not isinstance(layer, MultiHeadAttention) or layer.groups != layer.heads:
        raise InputError("only multi-head attention in which each head has its own keys can be pruned")
    if not heads or sorted(set(heads)) != list(heads) or not 0 <= heads[0] <= heads[-1] < layer.heads:
        raise InputError(
            f"heads {list(heads)} cannot stay: choose one or more of 0 to {layer.heads - 1}, in order"
        )
    device = layer.query.weight.device
    rows = torch.cat([torch.arange(layer.head_width, device=device) + head * layer.head_width for head in heads])
    for projection in (layer.query, layer.key, layer.value):
        projection.weight = nn.Parameter(projection.weight[rows])
        if projection.bias is not None:
            projection.bias = nn.Parameter(projection.bias[rows])
        projection.out_features = len(rows)
    layer.output.weight = nn.Parameter(layer.output.weight[:, rows])
    layer.output.in_features = len(rows)
    layer.heads = layer.groups = len(heads)
