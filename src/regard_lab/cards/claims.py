"""Claims of papers about attention mechanisms, each with the measurements that test it.

A claim is a difference for each seed and the sign that the paper expects. The verdict comes from the interval of
the mean difference over seeds, at a level that holds for all claims of `claim_table` at once (Bonferroni):

    reproduced               the interval excludes zero, on the expected side
    contradicted             the interval excludes zero, on the other side
    not seen at this size    the interval contains zero
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.statistics import LEVEL, Interval, paired_interval
from regard_lab.cards.cells import Results

MeasuredPair = tuple[str, str]
"""A mechanism and a probe."""
ClaimVerdict = Literal["reproduced", "not seen at this size", "contradicted", "unknown with one seed"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper, and the experiment that tests it."""

    name: str
    """The claim in one sentence."""
    source: str
    """Paper and section."""
    mechanisms: tuple[str, ...]
    """Mechanisms on whose cards the claim is shown."""
    needs: tuple[MeasuredPair, ...]
    """Measurements that the difference uses."""
    measured: str
    """What the difference is, with its unit."""
    difference: Callable[[Results], list[float]]
    """Function from measurements to one difference per seed."""
    expected: Literal["above 0", "below 0"]
    """Sign of the difference if the claim holds."""


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """The outcome of a claim's experiment."""

    claim: Claim
    interval: Interval
    """Mean difference over seeds, with an interval that holds for all claims at once."""
    seeds: int

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict; see the module."""
        if self.seeds < 2:
            return "unknown with one seed"
        if not self.interval.excludes_zero:
            return "not seen at this size"
        return "reproduced" if (self.interval.value > 0) == (self.claim.expected == "above 0") else "contradicted"

    @property
    def smallest(self) -> float | None:
        low, high = self.interval.low, self.interval.high
        return None if low is None or high is None else (high - low) / 2


def evaluate_claims(results: Results, claims: Sequence[Claim], *, of: int) -> list[ClaimResult]:
    """Return the outcome of each claim, with intervals that hold for `of` claims at once."""
    level = 1 - (1 - LEVEL) / of
    outcomes = []
    for claim in claims:
        values = claim.difference(results)
        outcomes.append(ClaimResult(claim=claim, interval=paired_interval(values, level), seeds=len(values)))
    return outcomes
