"""Which keys a head of a role looks at: each role written out, for one layer of one input.

Letters: T time, Tq of queries, Tk of keys.
"""

from collections.abc import Callable, Sequence

import numpy as np

from regard.viz.maps import CROSS, LayerMap

SEPARATORS = ("</s>", "<s>")
MOST_SEARCHED = 40
"""Places, and symbols, that are searched: the most frequent ones."""

Targets = Callable[[LayerMap, np.ndarray], np.ndarray | None]
"""Returns which keys a role looks at, (Tq, Tk) bool, given which may be seen; None where a layer has none."""


def _at(offset: int) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        return None if layer.kind == CROSS else np.eye(seen.shape[0], seen.shape[1], offset, dtype=bool)

    return targets


def _same(layer: LayerMap) -> np.ndarray:
    """Return which keys are the same symbol as the query's own, itself left out."""
    labels = np.array(layer.key_labels, dtype=object)
    found: np.ndarray = (labels[:, None] == labels[None, :]) & ~np.eye(len(labels), dtype=bool)
    return found


def _another_of_the_same(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    return None if layer.kind == CROSS or seen.shape[0] != seen.shape[1] else _same(layer)


def _after_the_same(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    """Induction (Olsson et al. 2022): what came after the last time that this symbol stood there."""
    if layer.kind == CROSS or seen.shape[0] != seen.shape[1]:
        return None
    before = np.tril(_same(layer), -1)
    found: np.ndarray = np.pad(before, ((0, 0), (1, 0)))[:, :-1] & np.tril(np.ones_like(before), -1)
    return found


def _diagonal(backwards: bool) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        if layer.kind != CROSS or seen.shape[0] < 3:
            return None
        inputs = sum(label not in SEPARATORS for label in layer.key_labels)
        outputs = sum(label not in SEPARATORS for label in layer.query_labels)
        place = np.round(np.arange(seen.shape[0]) * (inputs - 1) / max(outputs - 1, 1))
        place = inputs - 1 - place if backwards else place
        found: np.ndarray = np.arange(seen.shape[1])[None, :] == place[:, None]
        return found

    return targets


def _numbered(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    return np.eye(*seen.shape, dtype=bool) if layer.kind == CROSS else None


def _place(place: int) -> Targets:
    return lambda layer, seen: np.arange(seen.shape[1])[None, :].repeat(seen.shape[0], 0) == place


def _symbol(*symbols: str) -> Targets:
    def targets(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
        return np.isin(np.array(layer.key_labels), symbols)[None, :].repeat(seen.shape[0], 0)

    return targets


RELEVANT = "what the answer depends on"
FIXED: dict[str, Targets] = {
    "its own step": _at(0),
    "the previous step": _at(-1),
    "the next step": _at(1),
    "what followed the same symbol before": _after_the_same,
    "other steps with the same symbol": _another_of_the_same,
    RELEVANT: lambda layer, seen: layer.relevant,
    "the same place in the input, as it goes along": _diagonal(backwards=False),
    "the input from its end, as it goes along": _diagonal(backwards=True),
    "the input with the output's own number": _numbered,
    "the first step": _place(0),
    "the end of the sequence": _symbol(*SEPARATORS),
}
"""Roles that need no search, the more telling ones first: where two fit alike, the first one is said."""


def searched_roles(maps: Sequence[LayerMap]) -> dict[str, Targets]:
    """Return the roles of looking at one place, or at one symbol, wherever it stands."""
    longest = max(each.weights.shape[2] for each in maps)
    counts: dict[str, int] = {}
    for each in maps:
        for label in set(each.key_labels) - set(SEPARATORS):
            counts[label] = counts.get(label, 0) + 1
    # What a head does where a rare symbol stands says little of what it does: most inputs have none.
    common = [label for label, count in counts.items() if count >= len(maps) / 2]
    frequent = sorted(common, key=lambda label: -counts[label])[:MOST_SEARCHED]
    places = {
        f"step {place}, whatever stands there": _place(place) for place in range(1, min(longest, MOST_SEARCHED))
    }
    symbols = {f"the symbol {label!r}, wherever it stands": _symbol(label) for label in frequent}
    return places | symbols
