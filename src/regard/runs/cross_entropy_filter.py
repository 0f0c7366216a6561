"""How well the sides of a pair fit, by two translators of opposite directions (Junczys-Dowmunt 2018, "Dual
Conditional Cross-Entropy Filtering of Noisy Parallel Corpora", section 3.1)."""

import math
from collections.abc import Sequence

from regard.runs.sequence_run import SequenceRun


def dual_score(forward: float, backward: float) -> float:
    """Return exp(-(|H_A - H_B| + (H_A + H_B) / 2)), equation 1: 1 for a pair that both find certain, less where
    they do not, or not alike. `forward`, `backward`: cross-entropies per token, in nats."""
    return math.exp(-(abs(forward - backward) + (forward + backward) / 2))


def dual_scores(
    pairs: Sequence[tuple[str, str]],
    forward: SequenceRun,
    backward: SequenceRun | None = None,
    *,
    batchsize: int = 64,
) -> list[float | None]:
    """Return the dual score of each pair, in order; None for one that is too long for a run.

    `forward` translates source to target, `backward` target to source. Without `backward`, it is exp(-H) of
    `forward` alone.
    """
    turned = [(target, source) for source, target in pairs]
    ways = [(forward, list(pairs))] + ([] if backward is None else [(backward, turned)])
    fits = [all(run.too_long(each[at][0]) is None for run, each in ways) for at in range(len(pairs))]
    entropies = []
    for run, given in ways:
        fitting = [pair for pair, fit in zip(given, fits, strict=True) if fit]
        entropies.append([-each.per_token for each in run.score(fitting, batchsize=batchsize)])
    found = (dual_score(each[0], each[-1]) for each in zip(*entropies, strict=True))  # alone: twice the same
    return [next(found) if fit else None for fit in fits]
