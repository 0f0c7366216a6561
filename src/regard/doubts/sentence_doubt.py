"""The doubt of single translations, with a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.vocabulary import is_blank
from regard.decoding import SearchTrace
from regard.doubts.calibration_file import Calibration, Origin, read_calibration
from regard.doubts.features import FeatureReader
from regard.result import Result
from regard.runs import SequenceRun, load_translator

MEANINGS = {
    "from_uniform": "distance of the attention from uniform",
    "end_share": "share of the attention on punctuation and the end of the source",
    "entropy": "entropy of the attention",
    "unread": "share of the source that no step reads",
    "unread_span": "share of three source tokens that no step reads",
    "contribution": "length of the values that a step reads from the source",
    "from_data": "distance of the attention from that in training",
    "improbable": "negative log-probability per token",
    "weakest": "negative log-probability of the three least probable tokens",
    "uneven": "standard deviation of the log-probability per token",
    "no_gain": "log-probability per token in usual text, minus that in this translation",
    "reverse": "negative log-probability of the source given the translation",
    "length": "log of the length of the source divided by that of the translation",
    "repeated": "repeats of the most frequent pair of words beyond those of the source",
    "copied": "share of the words that are copied from the source",
}
"""What each feature measures, by its name without the layer."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Doubt(Result):
    """The doubt of one translation."""

    source: str
    translation: str
    doubt: float
    """Probability (0 to 1) of a fault, if each kind of planted fault were as frequent as good translations."""
    log_odds: float
    """The doubt as log-odds, which still order doubts near 1."""
    warned: bool
    """Whether the log-odds are above the threshold of the calibration."""
    reason: str
    """The most likely kind of fault, see `regard.doubts.faults`."""
    evidence: str
    """The feature that speaks most for this kind of fault, with its usual values."""

    def __str__(self) -> str:
        warning = "" if self.warned else "no warning; most likely "
        return f"doubt {self.doubt:.3f}, {warning}{self.reason}: {self.evidence}"


class Doubter:
    """Measures the doubt of translations of a run by its stored calibration.

    Raises `InputError` if the run is not calibrated, or the run of the opposite direction is missing.
    """

    def __init__(self, run: SequenceRun) -> None:
        self.run = run
        self.calibration: Calibration = read_calibration(run)
        self.reverse: SequenceRun | None = None
        if self.calibration.reverse is not None:
            self.reverse = load_translator(self.calibration.reverse)
        self._reader = FeatureReader(run, self.calibration.basis, self.reverse)

    def measure(
        self,
        pairs: Sequence[tuple[str, str]],
        origin: Origin = "translations",
        traces: Sequence[SearchTrace | None] | None = None,
    ) -> list[Doubt | None]:
        """Return the doubt of translations, given as pairs of source and translation.

        `origin`: "translations" for the run's own translations, "references" for translations from elsewhere,
        whose threshold is higher. `traces`: traces of the search, which save a pass over its translations. A pair
        with a blank source has no doubt (None).
        """
        rows = [row for row, (source, _) in enumerate(pairs) if not is_blank(source)]
        doubts: list[Doubt | None] = [None] * len(pairs)
        if not rows:
            return doubts
        features = self._reader.measure(
            [pairs[row] for row in rows], None if traces is None else [traces[row] for row in rows]
        )
        classifier, threshold = self.calibration.classifier, self.calibration.thresholds[origin]
        odds = classifier.log_odds(features)
        kinds, totals = odds.argmax(1), np.logaddexp.reduce(odds, axis=1)
        evidence = classifier.contributions(features, kinds).argmax(1)
        for index, row in enumerate(rows):
            total, most = float(totals[index]), int(evidence[index])
            doubts[row] = Doubt(
                source=pairs[row][0],
                translation=pairs[row][1],
                doubt=1 / (1 + math.exp(-total)) if total > -700 else 0.0,
                log_odds=total,
                warned=total > threshold,
                reason=classifier.kinds[kinds[index]],
                evidence=self._evidence(most, features[index, most]),
            )
        return doubts

    def _evidence(self, feature: int, value: float) -> str:
        """Describe the feature that adds most to the log-odds of the reason, with its usual values."""
        name, (low, high) = self.calibration.features[feature], self.calibration.usual[:, feature]
        layer, _, measure = name.rpartition(" ")
        where = f" ({layer})" if layer else ""
        return f"{MEANINGS[measure]}{where} {value:.2f}, usually {low:.2f} to {high:.2f}"


def doubt(
    run: SequenceRun, pairs: Sequence[tuple[str, str]], *, origin: Origin = "translations"
) -> list[Doubt | None]:
    """Return the doubt of translations of a calibrated run, given as pairs of source and translation.

    `origin`: "translations" if the run wrote them, "references" if they come from elsewhere. A pair with a blank
    source has no doubt (None).

    >>> sources = ["ein Hund rennt .", "zwei Kinder spielen ."]    # doctest: +SKIP
    >>> regard.doubt(run, list(zip(sources, run.translate(sources))))    # doctest: +SKIP
    [<Doubt: doubt 0.012, no warning; most likely looped: ...>, <Doubt: doubt 0.998, omitted: ...>]

    Raises `InputError` if the run is not calibrated (`regard.calibrate_doubt`).
    """
    return Doubter(run).measure(pairs, origin)
