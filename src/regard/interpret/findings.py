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
    gradient: Estimate | None = None
    """Rank correlation (-1 to 1) of the weights with the norm of the gradient; None if the correlation could
    not be measured."""
    ablation: Estimate | None = None
    """Rank correlation of the weights with ablation."""
    gradient_beyond: Estimate | None = None
    """`gradient` minus the correlation with another sample's values, as the mean of the differences in each
    sample.
    """
    ablation_beyond: Estimate | None = None
    """`ablation` minus the correlation with another sample's values."""
    gradient_permuted: Estimate | None = None
    """Rank correlation of the weights with the norm of the gradient on another sample."""
    ablation_permuted: Estimate | None = None
    """Rank correlation of the weights with ablation on another sample."""
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
        clauses = [
            *self._describe_relevance(),
            *self._describe_ranking("the norm of the gradient", self.gradient, self.gradient_beyond),
            *self._describe_ranking("ablation to the mean", self.ablation, self.ablation_beyond),
            self._describe_importance(),
        ]
        return f"{self.layer}, head {self.head}: {'; '.join(clauses)}."

    def _describe_importance(self) -> str:
        """Return a clause on the change of the loss without the head."""
        if self.interval is None:
            return f"switching it off changes the {self.measure} by {self.importance:+.3f} (interval unknown)"
        low, high = self.interval.low, self.interval.high
        change = f"{self.importance:+.3f} ({low:+.3f} to {high:+.3f})"
        if low > 0:
            return f"switching it off adds {self.importance:.3f} ({low:.3f} to {high:.3f}) to the {self.measure}"
        if high < 0:
            return f"switching it off lowers the {self.measure}: {change}"
        return f"switching it off is not shown to change the {self.measure}: {change}"

    def _describe_relevance(self) -> list[str]:
        """Return a clause on the attention to relevant inputs; empty if the relevant inputs are unknown."""
        if self.relevance is None or self.beyond_uniform is None or self.beyond_permuted is None:
            return []
        share = f"{percent(self.relevance.mean, 0)} of its attention is on what the answer depends on"
        # The whole interval must be above 0: such a claim is false in about 1 of 40 cases.
        if self.beyond_uniform.low <= 0:
            less = "less than" if self.beyond_uniform.high < 0 else "not shown to be more than"
            return [f"{share}, which is {less} with uniform attention"]
        if self.beyond_permuted.low > 0:
            return [f"{share}, more than with uniform attention and more than for another sample's inputs"]
        same = f"{share}, more than with uniform attention, but not more than for another sample's inputs"
        if self.moved is not None and self.moved < STEADY:
            return [
                f"{same}: it attends to fixed positions, independent of the input "
                f"({percent(self.moved, 0)} of it moves)"
            ]
        return [same]

    @staticmethod
    def _describe_ranking(measure: str, correlation: Estimate | None, beyond: Estimate | None) -> list[str]:
        """Return a clause on the rank correlation with another measure; empty if the correlation was not
        measured.
        """
        if correlation is None:
            return []
        value = f"({correlation.mean:.2f}, {correlation.low:.2f} to {correlation.high:.2f})"
        # The values of another sample show how strongly the ranks agree because of positions alone.
        if correlation.low > 0 and (beyond is None or beyond.low > 0):
            # The limits 0.7 and 0.3 are conventions. The interval's lower end must reach them.
            strength = "closely" if correlation.low >= 0.7 else "in part" if correlation.low >= 0.3 else "weakly"
            return [f"its ranking of the inputs agrees {strength} with the ranking by {measure} {value}"]
        if correlation.low > 0:
            return [
                f"its ranking of the inputs agrees with the ranking by {measure} {value}, but not more than with "
                "that of another sample"
            ]
        relation = "is opposite to" if correlation.high < 0 else "is not shown to agree with"
        return [f"its ranking of the inputs {relation} the ranking by {measure} {value}"]


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
