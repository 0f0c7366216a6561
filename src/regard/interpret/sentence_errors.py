"""How often the sentences of `regard examine` are wrong, by kind, measured on models whose circuit is known.

`python -m regard.bench.sentences` measures the rates on models that were not used to set thresholds, and writes
them to `sentence_errors.json`: by kind, the number of sentences that were tested, and of those that were wrong.
"""

import functools
import json
from importlib import resources
from typing import NamedTuple

from regard.statistics import count_interval

FILE = "sentence_errors.json"
MOST_WRONG = 0.07
"""Largest upper end of the interval of a kind's error rate; a kind above it says "cannot be told"."""


class ErrorRate(NamedTuple):
    """Counts of one kind of sentence."""

    tested: int
    wrong: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the error rate."""
        interval = count_interval(self.wrong, self.tested)
        assert interval.low is not None and interval.high is not None
        return interval.low, interval.high


@functools.cache
def error_rates() -> dict[str, ErrorRate]:
    """Return the measured error rates by kind of sentence."""
    stored = json.loads(resources.files("regard.interpret").joinpath(FILE).read_text(encoding="utf-8"))
    return {kind: ErrorRate(counts["tested"], counts["wrong"]) for kind, counts in stored["kinds"].items()}


def is_reliable(kind: str) -> bool:
    """Return whether sentences of a kind may be said: their error rate is low, or was not measured."""
    rate = error_rates().get(kind)
    return rate is None or rate.interval[1] <= MOST_WRONG


def describe_error(kind: str) -> str:
    """Return the measured error rate of a kind of sentence as text."""
    rate = error_rates().get(kind)
    if rate is None:
        return "error rate not measured"
    low, high = rate.interval
    wrong = 100 * rate.wrong / rate.tested
    return f"of 100 such sentences about known models {wrong:.0f} are wrong, {100 * low:.0f} to {100 * high:.0f}"
