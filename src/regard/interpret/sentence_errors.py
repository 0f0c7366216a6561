"""How often sentences about heads are wrong, by kind, measured on models whose circuit is known.

`python benchmarks/sentences.py` sets the threshold of each kind on one half of the models, measures the rates
on the other half, and writes both to `sentence_errors.json`. Wrong sentences of one program depend on each other,
so intervals are those of counts by program.
"""

import functools
import json
import math
from importlib import resources
from typing import NamedTuple

FILE = "sentence_errors.json"
RUN = "run"  # `Traits.origin` of the models on which the rates were measured
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
    families: dict[str, tuple[int, int]]
    """By family of models: number tested and wrong, with a threshold that was set on the other families."""

    @property
    def percent(self) -> str:
        """How many of 100 sentences are wrong, with the interval.

        >>> ErrorRate(50, 1, low=0.0, high=0.1, programs=9, true=9, told=9, threshold=0.5, families={}).percent
        '2 (0 to 10)'
        """
        if not self.tested:
            return "not measured"
        return f"{100 * self.wrong / self.tested:.0f} ({100 * self.low:.0f} to {100 * self.high:.0f})"


@functools.cache
def error_rates() -> dict[str, ErrorRate]:
    """Return the measured error rates by kind of sentence."""
    stored = json.loads(resources.files("regard.interpret").joinpath(FILE).read_text(encoding="utf-8"))
    return {
        kind: ErrorRate(**{**row, "families": {family: tuple(n) for family, n in row["families"].items()}})
        for kind, row in stored["kinds"].items()
    }


def threshold(kind: str) -> float:
    """Return what the measured value of a kind of sentence must exceed; infinity if no threshold is enough."""
    least = error_rates()[kind].threshold
    return math.inf if least is None else least


def is_reliable(kind: str) -> bool:
    rate = error_rates().get(kind)
    return rate is not None and rate.high <= MOST_WRONG


def describe_error(kind: str) -> str:
    """Return the measured error rate of a kind of sentence as text."""
    rate = error_rates().get(kind)
    if rate is None or not rate.tested:
        return "error rate not measured"
    wrong = 100 * rate.wrong / rate.tested
    return (
        f"of 100 such sentences about known models {wrong:.0f} are wrong, {100 * rate.low:.0f} to {100 * rate.high:.0f}"
    )


def error_bracket(kind: str, origin: str) -> str:
    """Return the error rate in brackets; empty for models of an origin for which it was not measured."""
    return f" ({describe_error(kind)})" if origin == RUN else ""
