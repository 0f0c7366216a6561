"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O

Optional differences from the paper: a bias in the projections, a head width other than `width / heads`, fewer
key and value heads than query heads (grouped-query attention, Ainslie et al. 2023), rotary positions, and all
parts of `regard.attention.mechanism`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.layer import AttentionLayer, check_states
from regard.attention.masks import as_weights_mask
from regard.attention.mechanism import Mechanism, PartChoice
from regard.attention.parts import AttentionKind, Grouped, LayerSizes, MultiQuery, Sharing, Slot
from regard.attention.positions import BASE, Rotary
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError, check_range
from regard.fast.joint_projection import can_join, joint_linear


class KeyValues(NamedTuple):
    """Projected keys and values of a source, or of the steps decoded so far, cached for later queries."""

    keys: Tensor
    """(B, G, Tk, any): projected, rotated and, unless the sharing part changes keys, prepared for the score. With
    latent attention, the latent vectors (B, 1, Tk, R)."""
    values: Tensor
    """(B, G, Tk, d). With latent attention, (B, 1, Tk, 0), or (B, 1, Tk, R) if values are of other states."""
    marks: Tensor | None = None
    """What a part stores for each key, (B, any, Tk, any), such as forget gates; None for most mechanisms."""

    def map(self, function: Callable[[Tensor], Tensor]) -> "KeyValues":
        return KeyValues(
            function(self.keys), function(self.values), None if self.marks is None else function(self.marks)
        )

    def append(self, new: "KeyValues") -> "KeyValues":
        marks = None if self.marks is None or new.marks is None else torch.cat([self.marks, new.marks], dim=2)
        return KeyValues(torch.cat([self.keys, new.keys], dim=2), torch.cat([self.values, new.values], dim=2), marks)


GROUPED = (Grouped, MultiQuery)
"""Parts that only share keys and values between heads."""
PLAIN_SLOTS: tuple[Slot, ...] = ("mask", "gate", "linear", "combination")
"""Slots whose parts take the sizes of the layer. Scores and normalizers take those of each query and key."""


@public
class MultiHeadAttention(AttentionLayer):
    """Multi-head attention for queries of width `width`.

    `head_width`: width of each head (default `width / heads`). `groups`: number of key and value heads, each
    shared by `heads / groups` query heads (default `heads`). `memory_width`: width of keys and values (default
    `width`). `score`: a class of `regard.attention.scores`, used in every head. `rotary`: rotate queries and
    keys by their positions, with the wavelengths of `rotary_base`. `mechanism`: parts such as `"alibi,sink"`,
    which replace `score`, `rotary` and `groups`. `kind` of the layer: causal (always masks later keys), self or
    cross. Raises `InputError` if the widths, heads, groups and parts do not fit together.

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
        mechanism: Mechanism | str | None = None,
        kind: AttentionKind = "self",
    ) -> None:
        super().__init__()
        check_range("groups", heads if groups is None else groups, 1, heads)
        if head_width is None and width % heads:
            raise InputError(
                f"width {width} cannot be split into {heads} heads: choose a multiple of {heads}, or a head_width"
            )
        slots, self.kind = Mechanism.for_layer(mechanism, kind).slots, kind
        memory_width = width if memory_width is None else memory_width
        self.heads, self.memory_width = heads, memory_width
        self.head_width = width // heads if head_width is None else head_width
        sizes = LayerSizes(width=width, memory_width=memory_width, heads=heads, head_width=self.head_width, kind=kind)
        if groups is not None and "sharing" in slots:
            raise InputError(f"groups {groups} and {slots['sharing'].name} both choose the keys: give one of them")
        self.sharing: Sharing | None = slots["sharing"].build(sizes) if "sharing" in slots else None
        self.groups = self.sharing.groups if self.sharing is not None else heads if groups is None else groups
        if heads % self.groups:
            raise InputError(
                f"heads {heads} cannot share {self.groups} groups of keys: choose a number of groups that "
                f"divides {heads}"
            )
        key_width = memory_width if self.sharing is None else self.sharing.key_width
        self.query = nn.Linear(width, heads * self.head_width, bias=bias)
        self.key = nn.Linear(key_width, self.groups * self.head_width, bias=bias)
        self.value = nn.Linear(key_width, self.groups * self.head_width, bias=bias)
        self.output = nn.Linear(heads * self.head_width, width, bias=bias)
        self.dropout = dropout
        self._build_parts(slots, sizes, score, rotary_base if rotary else None)

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

        `key` defaults to the queries, and `value` defaults to the keys. `mask`: (B, Tk), (Tq, Tk), (B, Tq, Tk) or (B,
        H, Tq, Tk), True = may be attended. `causal` masks later keys. `step`, for hooks: decoding step of the query, or
        None if the queries cover the whole sequence. Raises `InputError` for incompatible shapes.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_states(query, key, value)
        self._check_width("query", query, self.query.in_features)
        self._check_width("key", key, self.memory_width)
        self._check_width("value", value, self.memory_width)
        if key is query and value is query:
            return self.attend_self(query, mask, causal=causal, step=step)[0]
        return self.attend(query, self.project(key, value), mask, causal=causal, step=step)

    def attend_self(
        self,
        states: Tensor,
        mask: Tensor | None = None,
        *,
        past: KeyValues | None = None,
        causal: bool = False,
        step: int | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Return the context (B, T, D) of states (B, T, D) over `past` and themselves, and the keys and values of both.

        `mask`, `causal` and `step` are those of `forward`.
        """
        # One product for all projections is faster than three, if they have the same steps.
        if past is None and self._can_join((self.query, self.key, self.value)):
            queries, keys, values = self._project_jointly(states)
            memory = KeyValues(keys, values)
        else:
            memory = self.project(states, past=past)
            queries = self._queries(states, 0 if past is None else past.keys.shape[2])
        return self._attend(states, queries, memory, mask, causal=causal, step=step), memory

    def project(self, key: Tensor, value: Tensor | None = None, past: KeyValues | None = None) -> KeyValues:
        """Return the keys and values of states (B, T, Dm) for `attend`, appended to those of `past`."""
        offset, value, states = 0 if past is None else past.keys.shape[2], key if value is None else value, key
        if self.sharing is not None:
            key = self.sharing(states)
            value = key if value is states else self.sharing(value)
        elif past is None and value is key and self._can_join((self.key, self.value)):
            keys, values = self._project_jointly(key, queries=False)[1:]
            return KeyValues(keys, values)
        cached = self.sharing is not None and self.sharing.caches_inputs
        keys = key.unsqueeze(1) if cached else self._keys(key, offset)
        marked = self.marked
        marks = None if marked is None else marked.marks(states, partial(self._queries, states, offset))
        if cached:
            values = keys[..., :0] if value is key else value.unsqueeze(1)
        else:
            values = self._split(self.value(value), self.groups)
        new = KeyValues(keys, values, marks)
        return new if past is None else past.append(new)

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
        self._check_width("query", query, self.query.in_features)
        queries = self._queries(query, memory.keys.shape[2] - query.shape[1])
        return self._attend(query, queries, memory, mask, causal=causal, step=step)

    def _attend(
        self, query: Tensor, queries: Tensor, memory: KeyValues, mask: Tensor | None, *, causal: bool, step: int | None
    ) -> Tensor:
        """Return the context (B, Tq, D) of states `query` (B, Tq, D) with projections `queries` (B, H, Tq, d)."""
        keys, values, marks = memory
        if self.sharing is not None and self.sharing.caches_inputs:
            inputs = values if values.shape[-1] else keys
            keys, values = self._keys(keys.squeeze(1), 0), self._split(self.value(inputs.squeeze(1)), self.groups)
        if self.sharing is not None and self.sharing.changes_keys:
            keys = self.score.prepare(self.sharing.change_keys(keys))
        if mask is not None:
            mask = as_weights_mask(mask, query.shape[0], query.shape[1], keys.shape[2])
        context = self.contexts(queries, keys, values, mask, marks, causal=causal, step=step)
        if self.marked is not None:
            context = self.marked.change_context(context)
        # The gate comes after the recorded weights and before `z`, which is what the output projection reads.
        if self.gate is not None:
            context = self.gate(context, query)
        if self.hook is not None:
            context = self.hook.receive("z", context, step)
        output: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return output if self.hook is None else self.hook.receive("out", output, step)

    @property
    def standard(self) -> bool:
        """Whether attention is that of Vaswani et al. 2017, except for rotary positions and shared heads."""
        full = self.rotary is None or self.rotary.full
        grouped = self.sharing is None or type(self.sharing) in GROUPED
        return super().standard and full and grouped and self.gate is None

    def _build_parts(
        self, slots: dict[Slot, PartChoice], sizes: LayerSizes, score: type[Score], rotary_base: float | None
    ) -> None:
        """Build the parts of all slots except sharing. `rotary_base`: base of default rotary positions."""
        parts = {slot: choice.build(sizes) for slot, choice in slots.items() if slot in PLAIN_SLOTS}
        self.mask_part, self.gate, self.linear = parts.get("mask"), parts.get("gate"), parts.get("linear")
        self.combination = parts.get("combination")
        width = self.head_width // self.splits
        scores = dataclasses.replace(sizes, heads=self.heads * self.splits, head_width=width)
        self.score = slots["score"].build(scores) if "score" in slots else score(width, width)
        self.normalizer = slots["normalizer"].build(scores) if "normalizer" in slots else None
        self.rotary = self.bias = None
        if "position" not in slots:
            self.rotary = None if rotary_base is None else Rotary(width, rotary_base)
        elif slots["position"].cls is Rotary:
            self.rotary = slots["position"].build(scores)
        else:
            self.bias = slots["position"].build(sizes)

    @property
    def can_prune(self) -> bool:
        """Whether `keep_heads` can remove heads: each head has its own keys, and no part needs their number."""
        parts = (self.sharing, self.gate, self.combination, self.linear, self.bias)
        shared = self.normalizer is not None and any(True for _ in self.normalizer.parameters())
        return self.groups == self.heads and all(part is None for part in parts) and not shared

    def _can_join(self, projections: Sequence[nn.Linear]) -> bool:
        plain = self.sharing is None or type(self.sharing) in GROUPED
        return plain and self.splits == 1 and self.marked is None and can_join(projections)

    def _project_jointly(self, states: Tensor, *, queries: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, H or 0, T, d), keys and values (B, G, T, d) of states (B, T, D) by one product."""
        projections = [self.query, self.key, self.value] if queries else [self.key, self.value]
        counts = [self.heads * queries, self.groups, self.groups]
        heads = self._split(joint_linear(states, projections), sum(counts))
        if self.rotary is None:
            query, keys, values = heads.split(counts, dim=1)
        else:
            rotated, values = heads.split([counts[0] + counts[1], counts[2]], dim=1)
            query, keys = self.rotary.rotate(rotated).split(counts[:2], dim=1)
        return query, self.score.prepare(keys), values

    def _queries(self, states: Tensor, offset: int) -> Tensor:
        """Return the queries (B, H, T, d) of states (B, T, D), rotated for positions from `offset` on."""
        queries = self._split(self.query(states), self.heads, self.splits)
        return queries if self.rotary is None else self.rotary.rotate(queries, offset)

    def _keys(self, inputs: Tensor, offset: int) -> Tensor:
        """Return the keys (B, G, T, any) of inputs (B, T, key_width) for positions from `offset` on.

        Keys are prepared for the score unless the sharing part changes them."""
        keys = self._split(self.key(inputs), self.groups, self.splits)
        keys = keys if self.rotary is None else self.rotary.rotate(keys, offset)
        return keys if self.sharing is not None and self.sharing.changes_keys else self.score.prepare(keys)

    def _split(self, states: Tensor, heads: int, splits: int = 1) -> Tensor:
        """Split states (B, T, H d) into heads (B, H, T, d), or each head into `splits` parts (B, splits H, T,
        d / splits), all first parts before all second parts."""
        split: Tensor = states.unflatten(-1, (heads, -1)).transpose(1, 2)
        return split if splits == 1 else torch.cat(split.chunk(splits, dim=-1), dim=1)

    def _check_width(self, name: str, states: Tensor, width: int) -> None:
        if states.shape[-1] != width:
            raise InputError(f"{name} {tuple(states.shape)} does not fit: expected width {width}")


@public
@torch.no_grad()
def keep_heads(layer: nn.Module, heads: Sequence[int]) -> None:
    """Prune all heads of a layer except `heads` (Michel et al. 2019, section 4). The outputs are those of the
    whole layer with the pruned heads ablated.

    `heads`: heads to keep, in ascending order. Raises `InputError` without projections, or if `can_prune` is False.

    >>> layer = MultiHeadAttention(12, heads=3)
    >>> keep_heads(layer, [0, 2])
    >>> layer.heads, layer.query.out_features
    (2, 8)
    """
    if not isinstance(layer, MultiHeadAttention) or not layer.can_prune:
        raise InputError(
            "only multi-head attention in which each head has its own keys, without parts that depend on the "
            "number of heads (such as sink, alibi or a gate), can be pruned"
        )
    if not heads or sorted(set(heads)) != list(heads) or not 0 <= heads[0] <= heads[-1] < layer.heads:
        raise InputError(f"heads {list(heads)} cannot stay: choose one or more of 0 to {layer.heads - 1}, in order")
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
