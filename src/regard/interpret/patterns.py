"""Role patterns: the keys to which a head of each role attends, for one layer of one input.

Letters: Tq queries, Tk keys.
"""

from collections.abc import Callable, Sequence

import numpy as np

from regard.viz.maps import CROSS, LayerMap

SEPARATORS = ("</s>", "<s>")
MAX_SEARCHED = 40
"""Number of positions, and of most frequent symbols, that are searched."""

Targets = Callable[[LayerMap, np.ndarray], np.ndarray | None]
"""Takes a layer and its visible keys (Tq, Tk); returns the role's keys, (Tq, Tk) bool, or None if the layer has
no such keys."""


def _offset(offset: int) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        return None if layer.kind == CROSS else np.eye(seen.shape[0], seen.shape[1], offset, dtype=bool)

    return targets


def _same_symbol(layer: LayerMap) -> np.ndarray:
    labels = np.array(layer.key_labels, dtype=object)
    same: np.ndarray = (labels[:, None] == labels[None, :]) & ~np.eye(len(labels), dtype=bool)
    return same


def _repeated_symbol(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    return None if layer.kind == CROSS or seen.shape[0] != seen.shape[1] else _same_symbol(layer)


def induction_keys(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    """Return the keys (Tq, Tk) that follow earlier occurrences of the query's symbol; None for cross-attention.

    A head with this role is an induction head (Olsson et al. 2022). Only the shape of `seen` (Tq, Tk) is used.
    """
    if layer.kind == CROSS or seen.shape[0] != seen.shape[1]:
        return None
    # The keys that follow are the keys of earlier occurrences, shifted by one.
    before = np.tril(_same_symbol(layer), -1)
    followers: np.ndarray = np.pad(before, ((0, 0), (1, 0)))[:, :-1] & np.tril(np.ones_like(before), -1)
    return followers


def _followers(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    """Return `induction_keys`, and the query's own step if the symbol before it is equal."""
    keys = induction_keys(layer, seen)
    if keys is None:
        return None
    labels = np.array(layer.key_labels, dtype=object)
    repeated: np.ndarray = np.concatenate([[False], labels[1:] == labels[:-1]])
    # The symbol that followed the first "a" of "aa" is the second one. Without it, an exact induction head has a
    # strength of 0.5 only on short texts of three symbols.
    followers: np.ndarray = keys | np.diag(repeated)
    return followers


def _diagonal(backwards: bool) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        if layer.kind != CROSS or seen.shape[0] < 3:  # two steps have a first and a last one, and no direction
            return None
        inputs = sum(label not in SEPARATORS for label in layer.key_labels)
        outputs = sum(label not in SEPARATORS for label in layer.query_labels)
        # The positions are relative, because input and output may differ in length.
        position = np.round(np.arange(seen.shape[0]) * (inputs - 1) / max(outputs - 1, 1))
        position = inputs - 1 - position if backwards else position
        diagonal: np.ndarray = np.arange(seen.shape[1])[None, :] == position[:, None]
        return diagonal

    return targets


def _same_index(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    return np.eye(*seen.shape, dtype=bool) if layer.kind == CROSS else None


def _position(position: int) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        # Only the last query of a causal layer sees the last step: a head that attends to its own step would seem
        # to attend to this step, whatever the query.
        if position >= seen.shape[1] or 2 * seen[:, position].sum() < len(seen):
            return None
        keys: np.ndarray = np.arange(seen.shape[1])[None, :].repeat(seen.shape[0], 0) == position
        return keys

    return targets


def _either(first: Targets, second: Targets) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        keys, others = first(layer, seen), second(layer, seen)
        if keys is None or others is None:
            return None
        both: np.ndarray = keys | others
        return both

    return targets


def _symbol(*symbols: str) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        return np.isin(np.array(layer.key_labels), symbols)[None, :].repeat(seen.shape[0], 0)

    return targets


RELEVANT = "what the answer depends on"
FIXED: dict[str, Targets] = {
    "its own step": _offset(0),
    "the previous step": _offset(-1),
    "the next step": _offset(1),
    "what followed the same symbol before": _followers,
    "other steps with the same symbol": _repeated_symbol,
    RELEVANT: lambda layer, seen: layer.relevant,
    "the same relative position in the input": _diagonal(backwards=False),
    "the same relative position from the end of the input": _diagonal(backwards=True),
    "the input at the output's index": _same_index,
    "the first step": _position(0),
    "the end of the sequence": _symbol(*SEPARATORS),
}
"""Roles that need no search, the most specific role first: of two roles that fit equally well, the first role
is used.
"""
PAIRED: dict[str, Targets] = {
    f"{first} or {second}": _either(FIXED[first], FIXED[second])
    for first, second in (
        ("its own step", "the previous step"),
        ("its own step", "the next step"),
        ("the previous step", "the next step"),
        ("its own step", "the first step"),
        ("the previous step", "the first step"),
    )
}
"""Roles of heads that divide their attention; they are used if no single role fits."""
UNIFORM = "everything alike"
KINDS: dict[str, str] = {
    "its own step": "nearby step",
    "the previous step": "nearby step",
    "the next step": "nearby step",
    "what followed the same symbol before": "induction",
    "other steps with the same symbol": "same symbol",
    RELEVANT: "what the answer depends on",
    UNIFORM: "everything alike",
    **dict.fromkeys(PAIRED, "two steps"),
}
"""Kind of sentence of each role; error rates are measured by kind."""

ROLE_KINDS = tuple(dict.fromkeys([*KINDS.values(), "position", "symbol"]))


def role_kind(role: str) -> str:
    """Return the kind of sentence that names a role.

    >>> role_kind("step 3, with any symbol"), role_kind("the symbol 'B', at any step")
    ('position', 'symbol')
    """
    if role.startswith("the symbol ") or role == "the end of the sequence":
        return "symbol"
    return KINDS.get(role, "position")


def searched_roles(maps: Sequence[LayerMap]) -> dict[str, Targets]:
    """Return a role for each position, and a role for each frequent symbol at any position."""
    longest = max(sample.weights.shape[2] for sample in maps)
    counts: dict[str, int] = {}
    for sample in maps:
        for label in set(sample.key_labels) - set(SEPARATORS):
            counts[label] = counts.get(label, 0) + 1
    # Only frequent symbols are searched, because a rare symbol explains little of a head's attention.
    common = [label for label, count in counts.items() if count >= len(maps) / 2]
    frequent = sorted(common, key=lambda label: -counts[label])[:MAX_SEARCHED]
    positions = {
        f"step {position}, with any symbol": _position(position)
        for position in range(1, min(longest, MAX_SEARCHED))
    }
    symbols = {f"the symbol {label!r}, at any step": _symbol(label) for label in frequent}
    return positions | symbols
