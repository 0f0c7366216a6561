"""Score a ranking against a known answer: area under the ROC curve (AUROC).

AUROC is the probability that a ranking places a true item above a false one, where a tie counts one half (Hanley
and McNeil 1982). 1 is a perfect ranking, 0.5 that of chance, 0 a reversed ranking.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from regard.statistics import auroc

Truths = Mapping[str, Mapping[str, Sequence[bool | None]]]
"""For each kind of truth and each layer, one value per head; None where the truth is not defined."""


def score_inputs(scores: np.ndarray, truth: np.ndarray, candidates: np.ndarray | None = None) -> float | None:
    """Return the mean over output steps of the AUROC over input steps; `scores` and `truth` are (Tq, Tk).

    `candidates`: (Tq, Tk) bool, the inputs that are ranked for each output step; None: all. Output steps whose
    candidates are all true or all false are left out; the result is None if no step is left.

    >>> score_inputs(np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[False, True], [True, True]]))
    1.0
    """
    ranked = np.ones(truth.shape, dtype=bool) if candidates is None else candidates
    steps = [auroc(row[chosen], known[chosen]) for row, known, chosen in zip(scores, truth, ranked, strict=True)]
    values = [value for value in steps if value is not None]
    return float(np.mean(values)) if values else None


def score_heads(scores: Mapping[str, np.ndarray], truth: Mapping[str, Sequence[bool | None]]) -> float | None:
    """Return the AUROC over all heads of the layers in `scores`. Heads without a known truth are left out.

    >>> score_heads({"cross": np.array([2.0, 1.0])}, {"cross": (True, False)})
    1.0
    """
    pairs = [
        (float(score), known)
        for layer, values in scores.items()
        for score, known in zip(values, truth.get(layer, (None,) * len(values)), strict=True)
        if known is not None
    ]
    if not pairs:
        return None
    values, known = zip(*pairs, strict=True)
    return auroc(np.array(values), np.array(known))


def score_edges(scores: Mapping[tuple[str, str], float], edges: frozenset[tuple[str, str]]) -> float | None:
    """Return the AUROC over all edges in `scores`, where the edges of the circuit are true.

    >>> score_edges({("inputs", "logits"): 1.0, ("inputs", "encoder.0.feed_forward"): 0.0},
    ...             frozenset({("inputs", "logits")}))
    1.0
    """
    return auroc(np.array(list(scores.values())), np.array([edge in edges for edge in scores]))


def merge_truths(truths: Truths) -> dict[str, Mapping[str, Sequence[bool | None]]]:
    """Merge kinds of truth that agree on all heads; the name of a merged kind lists them.

    >>> same = {"cross": (True, False)}
    >>> list(merge_truths({"needed": same, "used": {"cross": (True, True)}, "sufficient": same}))
    ['needed, sufficient', 'used']
    """
    merged: dict[str, tuple[list[str], Mapping[str, Sequence[bool | None]]]] = {}
    for name, truth in truths.items():
        key = repr(sorted((layer, tuple(values)) for layer, values in truth.items()))
        merged.setdefault(key, ([], truth))[0].append(name)
    return {", ".join(names): truth for names, truth in merged.values()}
