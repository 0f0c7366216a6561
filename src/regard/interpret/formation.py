"""When heads form: the step at which a role is first taken, its median over seeds, and the order of roles.

A head has formed at the first snapshot from which its score stays at the threshold or above until the last
snapshot. A role has formed with the first of its heads. Seeds are matched by role: head numbers have no meaning
across seeds.

The median over seeds has an interval of order statistics, which holds for every distribution (Conover 1999,
"Practical Nonparametric Statistics", section 3.2): among n sorted values, the k-th smallest and the k-th largest
enclose the median with probability 1 - 2 P(Binomial(n, 1/2) < k). The largest k with at least 95 % is used. Fewer
than 6 seeds do not reach 95 %: their interval is the range, and `coverage` is its probability. A seed on which
the role has not formed counts as infinitely late, so that it is not left out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.arguments import public
from regard.interpret.head_scores import Head, HeadScores

SAMPLE_COUNT = 100
"""Default number of samples."""
THRESHOLD = 0.3
"""Score from which a head has a role. `regard.interpret.roles` names the role of a trained head from a larger
score, because it says where the head attends; here, a head that begins to attend to the role's keys counts."""
COVERAGE = 0.95


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Development:
    """The measurements of one run at all its snapshots: S snapshots, N heads."""

    run: str
    seed: int
    steps: list[int]
    """Training steps of the snapshots, (S,)."""
    heads: list[Head]
    roles: dict[str, np.ndarray]
    """Score of each role, (S, N); NaN for heads without keys of the role."""
    uniform: np.ndarray
    """1 minus the fraction of the weight that differs from uniform attention, (S, N)."""
    relevance: np.ndarray
    """Fraction of the weight on the inputs on which the answer depends, (S, N)."""
    entropy: np.ndarray
    """Mean entropy of the weights of a query, in nats, (S, N)."""
    importance: np.ndarray
    """Increase of the loss when the head is ablated, (S, N)."""
    loss: np.ndarray
    """Loss over the samples, (S,)."""
    accuracy: np.ndarray
    """Fraction (0 to 1) of correct outputs, (S,)."""
    in_context: np.ndarray
    """Loss late in a sequence minus loss early in the sequence, (S,)."""

    def __repr__(self) -> str:
        return f"<Development: {self.run}, {len(self.heads)} heads at {len(self.steps)} snapshots>"


def join_snapshots(run: str, seed: int, steps: Sequence[int], scores: Sequence[HeadScores]) -> Development:
    names = ("uniform", "relevance", "entropy", "importance", "loss", "accuracy", "in_context")
    arrays = {name: np.array([getattr(snapshot, name) for snapshot in scores]) for name in names}
    roles = {role: np.stack([snapshot.roles[role] for snapshot in scores]) for role in scores[0].roles}
    return Development(run=run, seed=seed, steps=list(steps), heads=scores[0].heads, roles=roles, **arrays)


def formed_at(scores: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Return for scores (S, N) the first snapshot of each head from which its score stays at `threshold` or
    above, (N,) int; S for a head whose last score is below it.

    >>> formed_at(np.array([[0.6, 0.1], [0.2, 0.7], [0.9, 0.8], [0.9, 0.2]]))
    array([2, 4])
    """
    above = scores >= threshold  # False for NaN
    stays: np.ndarray = np.logical_and.accumulate(above[::-1], axis=0).sum(0)
    return len(scores) - stays


@public
@dataclass(frozen=True, kw_only=True)
class RoleHead:
    """The head of a run that has a role, or the head with the largest score for the role."""

    head: int
    """Index of the head in `Development.heads`."""
    snapshot: int | None
    """Index of the snapshot at which the head has formed; None if no head has formed."""
    heads: int
    """Number of heads with this role at the last snapshot."""


def role_head(scores: np.ndarray, threshold: float = THRESHOLD) -> RoleHead:
    """Return the first head that has formed, of several the one with the largest last score; without such a head,
    the one with the largest last score. `scores` (S, N)."""
    formed, last = formed_at(scores, threshold), np.nan_to_num(scores[-1], nan=-np.inf)
    first = int(formed.min())
    head = int(np.argmax(np.where(formed == first, last, -np.inf)))
    snapshot = None if first == len(scores) else first
    return RoleHead(head=head, snapshot=snapshot, heads=int((formed < len(scores)).sum()))


@public
@dataclass(frozen=True, kw_only=True)
class MedianInterval:
    """The median of values over seeds and its interval; None beyond the last step, where the role has not
    formed."""

    median: float | None
    low: float | None
    high: float | None
    coverage: float
    """Probability with which an interval like this contains the median; 0 for a single seed."""


def interval_rank(seeds: int) -> tuple[int, float]:
    """Return the rank k of the interval's ends, counted from 1, and the coverage of the interval.

    >>> interval_rank(10)
    (2, 0.978515625)
    >>> interval_rank(3)
    (1, 0.75)
    """
    tails = [2 * sum(math.comb(seeds, count) for count in range(rank)) / 2**seeds for rank in range(1, seeds + 1)]
    rank = max((rank for rank, tail in enumerate(tails, 1) if 1 - tail >= COVERAGE), default=1)
    return rank, 1 - tails[rank - 1]


def median_interval(values: Sequence[float]) -> MedianInterval:
    """Return the median of values and its interval; infinite values are those of seeds without the event.

    >>> median_interval([30.0, 10.0, 20.0, math.inf])
    MedianInterval(median=25.0, low=10.0, high=None, coverage=0.875)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    rank, coverage = interval_rank(len(ordered))
    ends = (np.median(ordered), ordered[rank - 1], ordered[-rank])
    median, low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return MedianInterval(median=median, low=low, high=high, coverage=coverage)


def median_curves(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ordered = np.sort(curves, axis=0)
    rank, _ = interval_rank(len(ordered))
    return np.median(ordered, axis=0), ordered[rank - 1], ordered[-rank]


@public
@dataclass(frozen=True, kw_only=True)
class Order:
    """Number of seeds on which the event `first` comes before `second`."""

    first: str
    second: str
    before: int
    same: int
    """Seeds with both in the same snapshot, whose order is unknown."""
    after: int
    missing: int
    """Seeds on which neither has formed."""


def pair_orders(events: Mapping[str, Sequence[float]]) -> list[Order]:
    """Count the order of each pair of events over seeds; `events`: steps by name, infinite for "has not formed".

    >>> [order] = pair_orders({"a": [1, 2, 4], "b": [3, 2, math.inf]})
    >>> order.before, order.same, order.after
    (2, 1, 0)
    """
    orders = []
    for (first, steps), (second, others) in itertools.combinations(events.items(), 2):
        pairs = [(step, other) for step, other in zip(steps, others, strict=True) if min(step, other) < math.inf]
        orders.append(
            Order(
                first=first,
                second=second,
                before=sum(step < other for step, other in pairs),
                same=sum(step == other for step, other in pairs),
                after=sum(step > other for step, other in pairs),
                missing=len(steps) - len(pairs),
            )
        )
    return orders


def count_in_order(events: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return on how many seeds all events come strictly one after the other, and on how many besides no event
    comes before its predecessor, but some are in the same snapshot.

    >>> count_in_order([[1, 2, 4], [3, 2, 1]])
    (1, 1)
    """
    pairs = [list(itertools.pairwise(steps)) for steps in zip(*events, strict=True)]
    known = [pair for pair in pairs if all(max(steps) < math.inf for steps in pair)]
    strict = sum(all(first < second for first, second in pair) for pair in known)
    weak = sum(all(first <= second for first, second in pair) for pair in known)
    return strict, weak - strict
