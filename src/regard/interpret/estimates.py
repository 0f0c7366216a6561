"""Means over samples with their intervals, and how often sentences about heads are wrong.

Means have bootstrap-t intervals (Efron and Tibshirani 1993, chapter 12.5).

A bootstrap-t interval follows the skewness of the values: on the loss increases of Signal 2's heads (skewness 2
to 20), intervals over 1,000 samples cover the mean in 91 to 97 % of cases. No interval knows of values that no
sample shows: an effect on fewer than 3 of N inputs can be absent from N samples (rule of three, Hanley and
Lippman-Hand 1983). Captions say so, and claims that a head is not needed rest on exact intervals of counts.
"""

import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

import numpy as np

from regard.arguments import public
from regard.result import percent
from regard.statistics import LEVEL, Interval, mean_interval

RESAMPLES = 2000  # Number of resamples; 50 resamples then lie beyond each end of a 95 % interval
MIN_SAMPLES = 50
"""Smallest number of samples with which a 95 % interval contains the mean in about 95 % of cases."""
MIN_RESAMPLED = 10
"""Number of values below which resamples are too coarse for bootstrap-t. Fewer values have Student's interval."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Estimate:
    """A mean over samples and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        mean, low, high = (f"{round(value, 3) + 0.0:.3f}" for value in (self.mean, self.low, self.high))
        return f"{mean} ({low} to {high})"

    def __repr__(self) -> str:
        return f"<Estimate: {self}>"

    @classmethod
    def of(cls, interval: Interval) -> "Estimate":
        """Return an interval with known ends as an estimate."""
        assert interval.low is not None and interval.high is not None
        return cls(mean=interval.value, low=interval.low, high=interval.high)

    @property
    def percent(self) -> str:
        """The estimate as a percentage."""
        return f"{percent(self.mean)} ({percent(self.low)} to {percent(self.high)})"


def describe_interval(samples: int) -> str:
    """Return a caption for the intervals over `samples` samples.

    >>> describe_interval(200)
    '95 % interval over the samples; an effect on fewer than 3 in 200 inputs may be missed'
    """
    if samples >= MIN_SAMPLES:
        return f"95 % interval over the samples; an effect on fewer than 3 in {samples:,} inputs may be missed"
    return f"interval over the samples, too narrow for 95 %: use at least {MIN_SAMPLES} samples"


def tell_with(inputs: int, known: Estimate, bar: float) -> str:
    """Return about how many inputs would tell that a mean is on its side of a bar, as a text to append; empty for more
    than a hundred times those that were used. The interval's width falls with the square root of their number.

    >>> tell_with(50, Estimate(mean=0.6, low=0.4, high=0.8), 0.5)
    ' (about 200 inputs would tell)'
    """
    end, distance = known.low if known.mean > bar else known.high, abs(known.mean - bar)
    factor = ((known.mean - end) / distance) ** 2 if distance else math.inf
    if not 1 < factor <= 100:
        return ""
    step = 10 ** max(len(str(int(inputs * factor))) - 2, 0)
    return f" (about {math.ceil(inputs * factor / step) * step:,} inputs would tell)"


NOT_MEASURED = "not measured"


def format_estimate(estimate: Estimate | None, form: Callable[[Estimate], str] = str) -> str:
    """Format an estimate, or return "not measured"."""
    return NOT_MEASURED if estimate is None else form(estimate)


def resample_counts(samples: int, seed: int) -> np.ndarray:
    # The result contains counts instead of indices, so that one matrix product computes the means of all resamples.
    random = np.random.default_rng(seed)
    return random.multinomial(samples, np.full(samples, 1 / samples), size=RESAMPLES).astype(np.float64)


def estimate(
    values: Sequence[float] | np.ndarray, draw: np.ndarray, bounds: tuple[float, float] | None = None
) -> Estimate | None:
    """Return the mean of values (N) and its interval; `draw`: (R, N) from `resample_counts`. Samples without a
    value (NaN) are ignored. The result is None for fewer than two values.

    `bounds`: the smallest and the largest possible value, such as (0, 1) for shares. The interval then lies
    within the bounds, and allows for values at the bounds that no sample shows.

    >>> estimate([1.0, 1.0, float("nan")], resample_counts(3, seed=0))
    <Estimate: 1.000 (1.000 to 1.000)>
    """
    array = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(array)
    count = int(known.sum())
    if count < 2:
        return None
    array = array[known]
    mean = low = high = float(array.mean())
    if count < MIN_RESAMPLED:
        interval = mean_interval(array.tolist())
        low, high = (mean if end is None else end for end in (interval.low, interval.high))
    elif np.ptp(array) > 1e-12 * np.abs(array).max():
        low, high = _studentized_ends(array, draw[:, known])
    if bounds is not None:
        unseen = unseen_share(count) * (bounds[1] - bounds[0])
        low, high = max(min(low, bounds[1] - unseen), bounds[0]), min(max(high, bounds[0] + unseen), bounds[1])
    return Estimate(mean=mean, low=low, high=high)


def p_above(values: np.ndarray, bar: float) -> float:
    """Return the one-sided p-value of Student's test that the mean of values (N,) is not above `bar`, without NaN.

    >>> p_above(np.array([1.0, 1.0, 1.0]), 0.5), p_above(np.array([0.4, 0.6]), 0.5)
    (0.0, 0.5)
    """
    from scipy.special import stdtr  # SciPy takes long to import

    values = values[~np.isnan(values)]
    if len(values) < 2:
        return 1.0
    above, error = float(values.mean()) - bar, float(values.std(ddof=1)) / len(values) ** 0.5
    if error <= 1e-12:
        return 0.0 if above > 0 else 1.0
    return float(stdtr(len(values) - 1, -above / error))


def unseen_share(samples: int) -> float:
    """Return the largest share of inputs with a property that none of `samples` inputs shows with a probability of 2.5
    % (one end of a 95 % interval)."""
    return float(1 - ((1 - LEVEL) / 2) ** (1 / samples))


def _studentized_ends(values: np.ndarray, draw: np.ndarray) -> tuple[float, float]:
    """Return the ends of the bootstrap-t interval of values (N); `draw`: (R, N)."""
    mean, total = float(values.mean()), draw.sum(1)
    # A resample needs two samples with a value to have a variance.
    draw, total = draw[total > 1], total[total > 1]
    centered = values - mean
    shifts = draw @ centered / total
    variances = draw @ centered**2 / total - shifts**2
    variances[variances < 1e-12 * float((centered**2).max())] = 0.0
    # A resample of equal values has no variance, and is infinitely many standard errors from the mean.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = shifts / np.sqrt(variances / (total - 1))
    ratios[np.isnan(ratios)] = 0.0
    lower = np.quantile(ratios, (1 - LEVEL) / 2, method="lower")
    upper = np.quantile(ratios, (1 + LEVEL) / 2, method="higher")
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    # If many resamples have no variance, an end is infinite; the observed values then limit the interval.
    low, high = max(mean - float(upper) * error, values.min()), min(mean - float(lower) * error, values.max())
    return float(low), float(high)


# How often sentences about heads are wrong, by kind, measured on models whose circuit is known.
#
# `python benchmarks/sentences.py` sets the threshold of each kind on one half of the families of models, measures rates
# on the other half, and writes both to `sentence_errors.json`. Intervals are those of counts by program.

ERROR_FILE = "sentence_errors.json"
RUN, EXTERNAL = "run", "external"  # `Traits.origin` of runs, and the name of all other origins in the file
TOGETHER = "names other heads"
"""Kind of all verdicts that name other heads. They share an error rate, because there are few of each."""
NAMING = ("needed only together", "backup", "opposes")
MOST_WRONG = 0.07  # Largest upper end of the interval of a kind's error rate; a kind above it says "cannot be told"


class ErrorRate(NamedTuple):
    """Counts of one kind of sentence, on models that did not set its threshold."""

    tested: int
    wrong: int
    low: float  # Lower end of the 95 % interval of the error rate, over programs
    high: float
    programs: int  # Number of programs with such a sentence
    true: int  # Number of heads of which such a sentence would be right
    told: int  # Number of these heads of which a right sentence is said
    threshold: float | None
    """What the measured value must exceed; None if no threshold keeps 95 % of the sentences right."""

    @property
    def percent(self) -> str:
        """How many of 100 sentences are wrong, with the interval."""
        if not self.tested:
            return NOT_MEASURED
        return f"{100 * self.wrong / self.tested:.0f} ({100 * self.low:.0f} to {100 * self.high:.0f})"


@functools.cache
def error_rates() -> dict[str, ErrorRate]:
    """Return the measured error rates by kind of sentence."""
    stored = json.loads(resources.files("regard.interpret").joinpath(ERROR_FILE).read_text(encoding="utf-8"))
    return {kind: ErrorRate(**row) for kind, row in stored["kinds"].items()}


def threshold(kind: str) -> float:
    """Return what the measured value of a kind of sentence must exceed; infinity if no threshold is enough."""
    least = error_rates()[kind].threshold
    return math.inf if least is None else least


def rate_of(kind: str, origin: str = RUN) -> ErrorRate | None:
    """Return the error rate of a kind of sentence for models that were given in some way; None if not measured."""
    kind = TOGETHER if kind in NAMING else kind
    return error_rates().get(kind if origin == RUN else f"{EXTERNAL}: {kind}")


def is_reliable(kind: str, origin: str = RUN) -> bool:
    """Whether the error rate of a kind is low, or not measured; the rate of runs counts for a kind that is not measured
    on external models. Reports name kinds that are not measured."""
    rate = rate_of(kind, origin)
    rate = rate if rate is not None and rate.tested else rate_of(kind)
    return rate is None or (rate.tested > 0 and rate.high <= MOST_WRONG)


def describe_error(kind: str, origin: str = RUN) -> str:
    """Return the measured error rate of a kind of sentence as text."""
    rate = rate_of(kind, origin)
    known = rate is not None and rate.tested > 0
    return f"of 100 such sentences {rate.percent} are wrong" if rate and known else f"error rate {NOT_MEASURED}"


def describe_rates(kinds: Iterable[str], origin: str = RUN) -> str:
    """Return how often sentences of some kinds are wrong, as one sentence; empty without kinds."""
    rates = {kind: rate_of(kind, origin) for kind in kinds}
    texts = [f"{kind} {NOT_MEASURED if rate is None else rate.percent}" for kind, rate in rates.items()]
    models = "models whose heads are known" + ("" if origin == RUN else ", given as external models")
    return f"Wrong of 100 such sentences about {models} (95 % interval): {'; '.join(texts)}." if texts else ""
