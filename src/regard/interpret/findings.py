"""The measurements of one head, and a sentence that claims only what the measurements support."""

from dataclasses import dataclass

from regard.interpret.estimates import Estimate
from regard.result import Result

IMPORTANT = 0.01
"""Loss increase, in nats, above which a head is important."""
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
    """Rank correlation (-1 to 1) of the weights with gradient times input; None if the correlation could not be
    measured."""
    ablation: Estimate | None = None
    """Rank correlation of the weights with ablation."""
    gradient_permuted: Estimate | None = None
    """Rank correlation of the weights with gradient times input on another sample."""
    ablation_permuted: Estimate | None = None
    """Rank correlation of the weights with ablation on another sample."""
    moved: float | None = None
    """Fraction (0 to 1) of the head's attention that differs between samples; 0 if attention depends only on
    positions.
    """
    importance: float
    """Loss increase when the head is disabled, in nats."""
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
            *self._describe_ranking("gradients", self.gradient, self.gradient_permuted),
            *self._describe_ranking("ablation", self.ablation, self.ablation_permuted),
        ]
        if self.importance > IMPORTANT:
            clauses.append(f"switching it off adds {self.importance:.3f} to the {self.measure}")
        else:
            clauses.append(
                f"switching it off changes the {self.measure} by {self.importance:+.3f}: the "
                f"model hardly needs it"
            )
        return f"{self.layer}, head {self.head}: {'; '.join(clauses)}."

    def _describe_relevance(self) -> list[str]:
        """Return a clause on the attention to relevant inputs; empty if the relevant inputs are unknown."""
        if self.relevance is None or self.beyond_uniform is None or self.beyond_permuted is None:
            return []
        share = f"{self.relevance.mean:.0%} of its attention is on what the answer depends on"
        # The whole interval must be above 0: such a claim is false in about 1 of 40 cases.
        if self.beyond_uniform.low <= 0:
            return [f"{share}, which is not more than with uniform attention"]
        if self.beyond_permuted.low > 0:
            return [f"{share}, more than with uniform attention and more than for another sample's inputs"]
        same = f"{share}, more than with uniform attention, but not more than for another sample's inputs"
        if self.moved is not None and self.moved < STEADY:
            return [
                f"{same}: it attends to fixed positions, independent of the input ({self.moved:.0%} of it moves)"
            ]
        return [same]

    @staticmethod
    def _describe_ranking(measure: str, correlation: Estimate | None, permuted: Estimate | None) -> list[str]:
        """Return a clause on the rank correlation with another measure; empty if the correlation was not
        measured.
        """
        if correlation is None:
            return []
        # The values of another sample show how strongly the ranks agree because of positions alone.
        if correlation.low > max(0.0 if permuted is None else permuted.high, 0):
            # The limits 0.7 and 0.3 are conventions; the sentence includes the number.
            strength = (
                "closely" if correlation.mean >= 0.7 else "in part" if correlation.mean >= 0.3 else "barely"
            )
            return [
                f"its ranking of the inputs agrees {strength} with the ranking by {measure} "
                f"({correlation.mean:.2f})"
            ]
        return [f"its ranking of the inputs differs from the ranking by {measure} ({correlation.mean:.2f})"]
