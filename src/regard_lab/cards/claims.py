"""Claims of papers about attention mechanisms, each with the measurements that test it.

A claim is a difference for each seed and the sign that the paper expects. The verdict comes from the interval of
the mean difference over seeds, at a level that holds for all claims of `claim_table` at once (Bonferroni):

    reproduced               the interval excludes zero, on the expected side
    contradicted             the interval excludes zero, on the other side
    not seen at this size    the interval contains zero
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Literal

from regard.statistics import LEVEL, Interval, paired_interval
from regard_lab.cards.cells import Results
from regard_lab.cards.probe_training import BASELINE, ProbeResult
from regard_lab.cards.weight_shares import average_heads

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
    value: str
    """What is compared: a name of `VALUES` or `DIFFERENCES`."""
    expected: Literal["above 0", "below 0"]
    """Sign of the difference if the claim holds."""

    def difference(self, results: Results) -> list[float]:
        """Return one difference per seed: the mean over pairs of needs of the first value less the second."""
        if self.value in DIFFERENCES:
            return DIFFERENCES[self.value](results)
        value = VALUES[self.value]
        pairs = [
            [value(one) - value(other) for one, other in zip(results[first], results[second], strict=True)]
            for first, second in zip(self.needs[::2], self.needs[1::2], strict=True)
        ]
        return [fmean(row) for row in zip(*pairs, strict=True)]


BEST_OF_TEN = 0.05
"""Amount by which the best seed must exceed the mean of the seeds to count as misleading."""


def _irrelevant(result: ProbeResult) -> float:
    relevant = result.tests[""].shares.relevant
    assert relevant is not None, "the probe has known relevance"
    return 1 - average_heads(relevant)


def _entropy_growth(result: ProbeResult) -> float:
    longer, trained = (average_heads(result.tests[test].shares.entropy) for test in ("x4", ""))
    return longer / max(trained, 1e-9)


def _width_effect(results: Results) -> list[float]:
    """Return how much more the linear mechanism gains from width 32 than softmax, over 4 and 8 pairs."""

    def gains(name: str) -> list[float]:
        by_pairs = [
            [
                wide.tests[""].score - narrow.tests[""].score
                for wide, narrow in zip(*(results[name, f"mqar{n}_width{w}"] for w in (32, 16)), strict=True)
            ]
            for n in (4, 8)
        ]
        return [fmean(row) for row in zip(*by_pairs, strict=True)]

    return [linear - softmax for linear, softmax in zip(gains("linear"), gains(BASELINE), strict=True)]


def _best_above_mean(results: Results) -> list[float]:
    scores = [result.tests[""].score for result in results[BASELINE, "parity"]]
    return [max(scores) - score - BEST_OF_TEN for score in scores]


VALUES: dict[str, Callable[[ProbeResult], float]] = {
    "score": lambda result: result.tests[""].score,
    "score_x2": lambda result: result.tests["x2"].score,
    "remaining": lambda result: result.tests["x2"].score / max(result.tests[""].score, 1e-9),
    "first_token": lambda result: average_heads(result.tests[""].shares.first),
    "irrelevant": _irrelevant,
    "entropy_growth": _entropy_growth,
}
"""Values of a measurement, of a probe at the length of training, or at two or four times this length."""
DIFFERENCES: dict[str, Callable[[Results], list[float]]] = {
    "width_effect": _width_effect,
    "best_above_mean": _best_above_mean,
}
"""Differences that combine several measurements in another way."""


def _read_claims() -> tuple[Claim, ...]:
    table = tomllib.loads(files("regard_lab.cards").joinpath("claims.toml").read_text(encoding="utf-8"))
    return tuple(
        Claim(**{**row, "mechanisms": tuple(row["mechanisms"]), "needs": tuple(map(tuple, row["needs"]))})
        for row in table["claims"]
    )


CLAIMS = _read_claims()
"""All claims."""


def claims_of(mechanism: str) -> list[Claim]:
    """Return the claims about a mechanism.

    >>> [claim.expected for claim in claims_of("sink")]
    ['below 0']
    """
    return [claim for claim in CLAIMS if mechanism in claim.mechanisms]


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
