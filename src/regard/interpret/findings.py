"""The measurements of one head, and a sentence that claims only what the measurements support."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.arguments import public
from regard.interpret.estimates import Estimate
from regard.interpret.probing import RelevanceClaim, claim_relevance
from regard.interpret.sentence_errors import RUN, describe_error, error_bracket, is_reliable, threshold
from regard.result import Result, percent, signed
from regard.statistics import LEVEL, Interval, benjamini_hochberg

RAISES = "raises the loss"
"""Kind of the sentence that switching a head off raises the loss."""
NO_DIFFERENCE = "makes no difference that can be measured to"
QUALITIES = (("nearly always", 0.1), ("often", 0.4))
"""Claims on alignment, with the error rate below which they hold."""


@public
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
    relevance_p: float | None = None
    """p-value of both differences, corrected over all heads."""
    learned: bool = True
    """Whether the model predicts clearly better than untrained models."""
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
    unchanged: str = ""
    """Why nothing can be said about `importance`; empty if the head's context changes when it is disabled."""
    origin: str = RUN
    """How the model was given, as `Subject.origin`."""

    def __str__(self) -> str:
        return self.sentence()

    def summary(self) -> str:
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
        if self.beyond_uniform.high < 0:
            return "less than with uniform attention"
        # The whole interval must be above 0.
        if self.beyond_uniform.low <= 0:
            return "not shown to be more than with uniform attention"
        if self.relevance_claim is None and self.beyond_permuted.low > 0:
            return "more than with uniform attention; whether more than for another sample cannot be told"
        if self.beyond_permuted.low > 0:
            return "more than with uniform attention and more than for another sample's inputs"
        return "more than with uniform attention, but not more than for another sample's inputs"

    @property
    def relevance_claim(self) -> RelevanceClaim | None:
        """The claim on relevant inputs or fixed positions that is reliable enough to be said; None if there is
        none."""
        if not self.learned or self.beyond_uniform is None or self.beyond_permuted is None:
            return None
        claim = claim_relevance(self.beyond_uniform, self.beyond_permuted, self.moved)
        if claim is None or not is_reliable(claim.kind) or claim.value <= threshold(claim.kind):
            return None
        if (
            claim.kind == "relevant inputs"
            and self.relevance_p is not None
            and self.relevance_p > (1 - LEVEL) / 2
        ):
            return None
        return claim

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
        if self.unchanged:
            return f"what switching it off does cannot be told: {self.unchanged}"
        if self.interval is None:
            change = signed(self.importance, small=True)
            return f"switching it off changes the {self.measure} by {change} (interval unknown)"
        kind = importance_kind(self.interval)
        if kind == NO_DIFFERENCE:
            return f"switching it off {kind} the {self.measure}"
        mean, low, high = (
            signed(value, small=True) for value in (self.importance, self.interval.low, self.interval.high)
        )
        error = error_bracket(RAISES, self.origin) if kind == "raises" else ""
        return f"switching it off {kind} the {self.measure}: {mean} ({low} to {high}){error}"

    def _describe_relevance(self) -> str:
        """Return a clause on the attention to relevant inputs; empty if the relevant inputs are unknown."""
        if self.relevance is None or (kind := self.relevance_kind) is None:
            return ""
        share = f"{percent(self.relevance.mean, 0)} of its attention is on what the answer depends on, {kind}"
        if (claim := self.relevance_claim) is None:
            unsure = "cannot be told" in kind and self.learned
            return share + error_bracket("relevant inputs", self.origin) * unsure
        if claim.kind == "fixed positions" and self.moved is not None:
            share += f": it attends to fixed positions, independent of the input ({percent(self.moved, 0)} moves)"
        return share + error_bracket(claim.kind, self.origin)

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
    if interval.low == interval.high == 0:  # differences within rounding are 0
        return NO_DIFFERENCE
    if interval.low > threshold(RAISES) and is_reliable(RAISES):
        return "raises"
    return "lowers" if interval.high < 0 else "is not shown to change"


def correct_heads(heads: Sequence[HeadFindings]) -> list[HeadFindings]:
    """Return the findings with p-values that are corrected over all heads (Benjamini and Hochberg 1995)."""
    adjusted = iter(benjamini_hochberg([head.relevance_p for head in heads if head.relevance_p is not None]))
    return [head if head.relevance_p is None else replace(head, relevance_p=next(adjusted)) for head in heads]


def alignment_quality(rate: Interval) -> str | None:
    """Return how often the largest weight of a layer points to a symbol's origin; None if it cannot be told."""
    if rate.low is None or rate.high is None:
        return None
    quality = next((name for name, most in QUALITIES if rate.high < most), None)
    return "seldom" if quality is None and rate.low >= QUALITIES[-1][1] else quality


def describe_alignment(layer: str, rate: Interval) -> str:
    """Return a sentence on the alignment error rate of a layer. The interval decides what it claims."""
    if rate.low is None or rate.high is None:
        return f"{layer}: alignment error rate {percent(rate.value)} (interval unknown)."
    value = f"alignment error rate {percent(rate.value)}, {percent(rate.low)} to {percent(rate.high)}"
    quality = alignment_quality(rate)
    if quality is None or not is_reliable("alignment"):
        return f"{layer}: how often the largest weight points to a symbol's origin cannot be told ({value})."
    error = describe_error("alignment")
    return f"{layer}: the largest weight {quality} points to a symbol's origin ({value}; {error})."
