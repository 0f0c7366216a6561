"""The measurements of one head, and a sentence that claims only what the measurements support."""

from dataclasses import dataclass

from regard.interpret.estimates import Estimate
from regard.result import Result, percent
from regard.statistics import Interval

STEADY = 0.1
"""Largest fraction of the attention that differs between samples if a head attends to fixed positions."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadFindings(Result):
    """The measurements of one head."""

    layer: str
    head: int
    relevance: Estimate | None = None
    """Fraction (0 to 1) of the head's attention on relevant inputs; None if the task does not define relevant
    inputs.
    """
    beyond_uniform: Estimate | None = None
    """`relevance` minus the fraction under uniform attention, as the mean of the differences in each sample."""
    beyond_permuted: Estimate | None = None
    """`relevance` minus the fraction on the relevant inputs of another sample."""
    ranking: Estimate | None = None
    """Rank correlation (-1 to 1) of the weights with the dependence of the answer on each input; None if it could
    not be measured."""
    ranking_beyond: Estimate | None = None
    """`ranking` minus the correlation with another sample's values, as the mean of the differences in each
    sample."""
    ranking_permuted: Estimate | None = None
    """Rank correlation of the weights with the dependence on another sample's inputs."""
    moved: float | None = None
    """Fraction (0 to 1) of the head's attention that differs between samples; 0 if attention depends only on
    positions.
    """
    importance: float
    """Loss increase when the head is disabled, in nats."""
    interval: Estimate | None = None
    """`importance` with its interval; None if it is unknown."""
    measure: str = "loss"
    """Name of the loss of `importance`, if the loss is not computed against known answers."""

    def __str__(self) -> str:
        return self.sentence()

    def summary(self) -> str:
        """Return the name of the head."""
        return f"{self.layer} head {self.head}"

    def sentence(self) -> str:
        """Return a sentence with the claims that the measurements support."""
        clauses = [self._describe_relevance(), self._describe_ranking(), self._describe_importance()]
        return f"{self.layer}, head {self.head}: {'; '.join(filter(None, clauses))}."

    @property
    def relevance_kind(self) -> str | None:
        """What the intervals support about the attention to relevant inputs; None if it was not measured."""
        if self.relevance is None or self.beyond_uniform is None or self.beyond_permuted is None:
            return None
        # The whole interval must be above 0: such a claim is false in about 1 of 40 cases.
        if self.beyond_uniform.high < 0:
            return "less than with uniform attention"
        if self.beyond_uniform.low <= 0:
            return "not shown to be more than with uniform attention"
        if self.beyond_permuted.low > 0:
            return "more than with uniform attention and more than for another sample's inputs"
        return "more than with uniform attention, but not more than for another sample's inputs"

    @property
    def ranking_kind(self) -> str | None:
        """What the intervals support about the ranking of the inputs; None if it was not measured."""
        if self.ranking is None:
            return None
        if self.ranking.low <= 0:
            return "is opposite to" if self.ranking.high < 0 else "is not shown to agree with"
        # The values of another sample show how strongly the ranks agree because of positions alone.
        if self.ranking_beyond is not None and self.ranking_beyond.low <= 0:
            return "agrees, but not more than for another sample, with"
        # The limits 0.7 and 0.3 are conventions. The interval's lower end must reach them.
        strength = "closely" if self.ranking.low >= 0.7 else "in part" if self.ranking.low >= 0.3 else "weakly"
        return f"agrees {strength} with"

    def _describe_importance(self) -> str:
        """Return a clause on the change of the loss without the head."""
        if self.interval is None:
            return f"switching it off changes the {self.measure} by {self.importance:+.3f} (interval unknown)"
        low, high = self.interval.low, self.interval.high
        change = f"{self.importance:+.3f} ({low:+.3f} to {high:+.3f})"
        return f"switching it off {importance_kind(self.interval)} the {self.measure}: {change}"

    def _describe_relevance(self) -> str:
        """Return a clause on the attention to relevant inputs; empty if the relevant inputs are unknown."""
        if self.relevance is None or (kind := self.relevance_kind) is None:
            return ""
        share = f"{percent(self.relevance.mean, 0)} of its attention is on what the answer depends on, {kind}"
        if "but not" in kind and self.moved is not None and self.moved < STEADY:
            moved = percent(self.moved, 0)
            return f"{share}: it attends to fixed positions, independent of the input ({moved} of it moves)"
        return share

    def _describe_ranking(self) -> str:
        """Return a clause on the rank correlation with the dependence; empty if it was not measured."""
        if self.ranking is None:
            return ""
        value = f"{self.ranking.mean:.2f}, {self.ranking.low:.2f} to {self.ranking.high:.2f}"
        return f"its ranking of the inputs {self.ranking_kind} the effect of replacing them ({value})"


def importance_kind(interval: Estimate) -> str:
    """Return what the interval of a loss increase supports.

    >>> importance_kind(Estimate(mean=0.0, low=-0.1, high=0.1))
    'is not shown to change'
    """
    return "raises" if interval.low > 0 else "lowers" if interval.high < 0 else "is not shown to change"


def describe_alignment(layer: str, rate: Interval) -> str:
    """Return a sentence on the alignment error rate of a layer. The interval decides what it claims."""
    if rate.low is None or rate.high is None:
        return f"{layer}: alignment error rate {percent(rate.value)} (interval unknown)."
    value = f"alignment error rate {percent(rate.value)}, {percent(rate.low)} to {percent(rate.high)}"
    quality = next((name for name, most in (("nearly always", 0.1), ("often", 0.4)) if rate.high < most), None)
    if quality is None and rate.low >= 0.4:
        quality = "seldom"
    if quality is None:
        return f"{layer}: how often the largest weight points to a symbol's origin cannot be told ({value})."
    return f"{layer}: the largest weight {quality} points to a symbol's origin ({value})."
