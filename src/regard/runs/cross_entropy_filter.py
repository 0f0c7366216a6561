"""Dual cross-entropy filter: score sentence pairs with two translation models of opposite directions.

Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora", section 3.1.
"""

import math
from collections.abc import Sequence

from regard.runs.sequence_run import SequenceRun


def dual_score(forward: float, backward: float) -> float:
    """Return exp(-(|H_A - H_B| + (H_A + H_B) / 2)), equation 1, for cross-entropies per token in nats.

    The score is 1 if both models are certain, and lower if a model is uncertain or if the models disagree.

    >>> dual_score(0.0, 0.0), round(dual_score(1.0, 1.0), 3), round(dual_score(1.0, 3.0), 3)
    (1.0, 0.368, 0.018)
    """
    return math.exp(-(abs(forward - backward) + (forward + backward) / 2))


def dual_scores(
    pairs: Sequence[tuple[str, str]], forward: SequenceRun, backward: SequenceRun | None = None, *, batchsize: int = 64
) -> list[float | None]:
    """Return the dual score of each pair, in order, or None for a pair that is too long for a model.

    `forward` translates source to target, `backward` target to source. If `backward` is None, the score is
    exp(-H) for the cross-entropy H of `forward`.
    """
    turned = [(target, source) for source, target in pairs]
    directions = [(forward, list(pairs))] + ([] if backward is None else [(backward, turned)])
    fits = [
        all(run.too_long(run_pairs[index][0]) is None for run, run_pairs in directions) for index in range(len(pairs))
    ]
    entropies = []
    for run, run_pairs in directions:
        fitting = [pair for pair, fit in zip(run_pairs, fits, strict=True) if fit]
        entropies.append([-score.per_token for score in run.score(fitting, batchsize=batchsize)])
    # If `backward` is None, the first and the last entropy of a pair are the same.
    scores = (dual_score(pair_entropies[0], pair_entropies[-1]) for pair_entropies in zip(*entropies, strict=True))
    return [next(scores) if fit else None for fit in fits]
